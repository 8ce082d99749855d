"""What a log holds, whatever its format: rows in the order in which they were written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LATEST_NS = 2**63 - 1
"""The latest time that OTLP can say, in Unix nanoseconds."""


class Unreadable(Exception):
    """The log cannot be replayed; the message tells a person why, and what to do."""


@dataclass(slots=True)
class Row:
    """One call of an engine's logger.

    Attributes:
        number: the step that it was logged at.
        values: by the engine's own key.
        time_ns: when it was logged, in Unix nanoseconds. None where the log does not say.
        part: which of the log's files it is from.
        config: the configuration of the run that wrote it, where the log has it.
    """

    number: int
    values: dict[str, Any]
    time_ns: int | None = None
    part: int = 0
    config: Mapping[str, Any] | None = None


def config_of(rows: Iterable[Row]) -> Mapping[str, Any] | None:
    """The configuration of the run that wrote the rows. None if the log does not have it."""
    return next((row.config for row in rows if row.config is not None), None)


@dataclass(slots=True)
class Log:
    """What the files of one log say together.

    Attributes:
        engine: whose keys the rows have.
        rows: in the order in which they were written.
        ended_ns: when the newest file was last changed, which is the latest that its last row can be.
        last: the number of the last step, also where no row was logged at it. None where only the rows say it.
        planned: how many steps the run was to have. None where the log does not say.
        first_is_known: whether the rows begin where the run began, so that all steps before the first row are its own.
        notes: what a person should know of how it was read, one sentence each.
    """

    engine: str
    rows: list[Row] = field(default_factory=list)
    ended_ns: int = 0
    last: int | None = None
    planned: int | None = None
    first_is_known: bool = False
    notes: list[str] = field(default_factory=list)
