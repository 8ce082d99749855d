"""What verl's own timers measure in the process that trains. They are in every process: this imports nothing heavy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akka_otel_callbacks.common.tracing.interval import Interval

MOST = 4096
"""Timings that are kept: of one step there are a few dozen."""


class Timings:
    """What verl's timers measured in this process since the last look, while somebody listens."""

    def __init__(self) -> None:
        self.listening = False
        self._ended: deque[tuple[str, float, float, type[BaseException] | None]] = deque(maxlen=MOST)

    def take(self) -> list[Interval]:
        from akka_otel_callbacks.common.tracing.interval import Interval

        ended, self._ended = self._ended, deque(maxlen=MOST)
        return [Interval(*timing) for timing in ended]

    def timed(self, name: str, timer: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """verl's timer, which is a generator around what it times, with note taken of its begin and end."""
        start, error = time.perf_counter(), None
        try:
            return (yield from timer)
        except BaseException as raised:
            error = type(raised)
            raise
        finally:
            self._ended.append((name, start, time.perf_counter(), error))
