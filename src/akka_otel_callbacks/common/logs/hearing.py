"""Hears the package's log lines: each gets the IDs of the trace that it belongs to, and goes where logs are sent.

It is a filter and not a handler. Whether the logger has handlers decides whether a person sees its lines, and a filter
runs before all of them, so that a program's own handler has the IDs, too.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run import current


class Hearing(logging.Filter):
    """Hands every line to the telemetry that is open, and lets all of them pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        with suppress(Exception):  # a line about it would come here again
            if (telemetry := current.current()) is not None:
                telemetry.hear(record)
        return True


_hearing = Hearing()


def hear() -> None:
    """Hears the package's log lines from now on. A second call changes nothing."""
    logger.addFilter(_hearing)
