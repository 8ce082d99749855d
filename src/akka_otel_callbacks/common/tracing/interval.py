"""A part of a training's time. It imports nothing heavy: engines note intervals in processes that write no span."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """What was between two moments, in `time.perf_counter`'s seconds.

    Attributes:
        error: the exception that ended it, by its class. None where none did.
    """

    name: str
    start: float
    end: float
    error: type[BaseException] | None = None
