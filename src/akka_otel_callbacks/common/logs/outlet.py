"""Where the log lines of a telemetry leave its process."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from akka_otel_callbacks.common.logs.push import LogPush
from akka_otel_callbacks.common.threads import ExportLoop


class Logs:
    """Hands log lines to every place that the environment asks for. By default there is none."""

    def __init__(self, pushes: Sequence[LogPush] = ()) -> None:
        self._pushes = pushes
        self.threads: list[ExportLoop] = [push.loop for push in pushes]

    def add(self, line: logging.LogRecord) -> None:
        for push in self._pushes:
            push.add(line)

    def hurry(self) -> None:
        for push in self._pushes:
            push.hurry()

    def flush(self, deadline: float) -> bool:
        """Exports now, and waits up to a time of the monotonic clock. False where it took longer."""
        flushed = [loop.flush(max(0.0, deadline - time.monotonic())) for loop in self.threads]
        return all(flushed)

    def say_what_is_missing(self) -> None:
        for push in self._pushes:
            push.say_what_is_missing()
