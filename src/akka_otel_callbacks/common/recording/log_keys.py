"""What an engine logs under which key, as a table, and how a step is filled from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep


@dataclass(frozen=True, slots=True)
class LogKey:
    """One log key, and the field of a step that it fills. An engine adds what its values need."""

    key: str
    field: str


KeyT = TypeVar("KeyT", bound=LogKey)
StepT = TypeVar("StepT", RLStep, SFTStep)


def fill(step: StepT, keys: Iterable[KeyT], value_of: Callable[[KeyT], float | None]) -> StepT:
    """Sets each field from the first of its keys that has a value. A field that is set already stays.

    Args:
        step: set in place, and returned.
        keys: of several keys of one field, such as an old and a new name, the one that counts stands first.
        value_of: a key's value. None where there is none.
    """
    for key in keys:
        if getattr(step, key.field) is None:
            setattr(step, key.field, value_of(key))
    return step
