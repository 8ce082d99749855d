"""How a training ended, as far as its files tell."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.log_records import LogRecord
from akka_otel_callbacks.reading.spans import Span

STOPS = ("KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit")
"""What ends a training from outside and is no failure of its own."""


class How(str, Enum):
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"
    UNKNOWN = "no end recorded"
    """It still runs, or its process was killed, or whoever would tell, the job's span, was not exported."""


class Ending(NamedTuple):
    """`error_type` is the class of the exception that ended it, empty without one. `time_ns` is when, in Unix
    nanoseconds; 0 where no end is recorded."""

    how: How
    error_type: str = ""
    time_ns: int = 0

    def __str__(self) -> str:
        with_what = {How.FAILED: " with ", How.INTERRUPTED: " by "}.get(self.how)
        return self.how.value + (f"{with_what}{self.error_type}" if with_what and self.error_type else "")


NO_END = Ending(How.UNKNOWN)


def ending(job: Span | None, records: Sequence[LogRecord]) -> Ending:
    """How the training ended, by the job's span, which is written when the job ends, or else by the log record of what
    ended it.

    Args:
        job: the span of the training. None without one.
        records: the run's own, oldest first.
    """
    if job is None:
        failures = [record for record in records if record.event == names.EVENT_JOB_FAILED.name]
        return _failed(failures[-1].error_type, failures[-1].time_ns) if failures else NO_END
    if job.failed or job.error_type:
        return _failed(job.error_type, job.end)
    return Ending(How.PAUSED if job.pause_policy else How.FINISHED, "", job.end)


def _failed(error_type: str, time_ns: int) -> Ending:
    return Ending(How.INTERRUPTED if error_type in STOPS else How.FAILED, error_type, time_ns)
