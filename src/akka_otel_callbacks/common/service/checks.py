"""Refuses a wrong argument of a service, with an error that names the value and what was expected."""

from __future__ import annotations

import math
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.labels import LARGEST_NUMBER
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.vocabulary.metric import Attribute

LONGEST_SHOWN = 100


def known(attribute: Attribute, value: Any) -> str:
    """One of the attribute's values. Raises ValueError for anything else."""
    if value not in attribute.values:
        raise ValueError(f"{_shown(value)} is no {attribute.name}: it is one of {', '.join(attribute.values)}")
    return str(value)


def named(what: str, value: Any) -> str:
    """A name that is not empty. Raises ValueError for anything else."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} is {_shown(value)}, which is no name: it is a string that is not empty")
    return value


def counted(what: str, value: Any) -> int:
    """How many of something. Raises ValueError for anything but an int from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LARGEST_NUMBER:
        raise ValueError(f"{what} is {_shown(value)}, which is no count: it is an int from 0")
    return value


def truth(what: str, value: Any) -> bool:
    """Raises ValueError for anything but True and False: in an attribute, 1 would be another series than True."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} is {_shown(value)}: it is True or False")
    return value


def seconds(what: str, value: Any) -> float:
    """A time or a duration. Raises ValueError for anything but a finite number from 0."""
    figure = number(value)
    if figure is None or not math.isfinite(figure) or figure < 0:
        raise ValueError(f"{what} is {_shown(value)}, which is no time: it is in seconds, finite and not below 0")
    return figure


def each(what: str, kind: type, values: Any) -> None:
    """Raises ValueError where one of the values is of another type."""
    wrong = next((value for value in values if not isinstance(value, kind)), None)
    if wrong is not None:
        raise ValueError(f"{what} has {_shown(wrong)}, which is no {kind.__name__}")


def _shown(value: Any) -> str:
    return one_line(repr(value), LONGEST_SHOWN)
