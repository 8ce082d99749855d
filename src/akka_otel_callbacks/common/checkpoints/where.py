"""Which telemetry publishes the checkpoint operations of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run import current

if TYPE_CHECKING:
    from akka_otel_callbacks.common.checkpoints.attempt import Attempt
    from akka_otel_callbacks.common.checkpoints.reporting import Reporting
    from akka_otel_callbacks.common.telemetry import Telemetry

_reporting: list[Reporting] = []
"""The open telemetries that were opened for checkpoints."""


def add(reporting: Reporting) -> None:
    _reporting.append(reporting)


def remove(reporting: Reporting) -> None:
    if reporting in _reporting:
        _reporting.remove(reporting)


def telemetry_of_run() -> Telemetry | None:
    """The telemetry that was opened for checkpoints, else the run's own. None in a process without any."""
    for reporting in reversed(tuple(_reporting)):
        if (telemetry := reporting.telemetry) is not None and not telemetry.closed:
            return telemetry
    return current.current()


def lost(attempt: Attempt) -> None:
    """Warns of an attempt that is not published. In a process that never had a telemetry nobody expects it to be."""
    if current.was_open():
        logger.warning(
            "checkpoint %s (%s, %.1f s) ended after the run's telemetry and is not published. A publisher that "
            "outlives the training opens one of its own with `checkpoints.reporting()`",
            attempt.operation,
            attempt.outcome(),
            (attempt.end_ns - attempt.start_ns) / 1e9,
        )
