"""A part of a training's time. It imports nothing heavy: engines note intervals in processes that write no span."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """A stretch of time. Its start and end are seconds of `time.perf_counter`.

    Attributes:
        error: the class of the exception that ended it. None if none did.
    """

    name: str
    start: float
    end: float
    error: type[BaseException] | None = None
