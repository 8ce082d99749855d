"""The package's logger. Its lines reach a person even where the program configured no logging at all."""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("akka_otel_callbacks")


class _ToPeople(logging.Handler):
    """Writes to stderr where nobody else takes the line.

    The stream is looked up for every line: a notebook or a test puts another in its place and closes the first. A line
    that cannot be written is dropped, where logging would print a traceback of its own.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if logger.propagate and _others():
            return
        try:
            sys.stderr.write(f"akka-otel: {self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - stderr may be closed, full, or missing
            pass


def show_to_people() -> None:
    """Sends the package's lines, from info upwards, to stderr where no logging is configured; a configured program
    keeps its own way. A warning that comes before is shown in either case."""
    if logger.propagate and not _others():
        logger.setLevel(logging.INFO)
        logger.propagate = False  # a root handler that the program installs later would print each line twice


def show_infos() -> None:
    """Shows the lines from info upwards where an engine's root logger hides them, and not a person's own choice."""
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def _others() -> bool:
    """Whether the program has handlers that our lines reach."""
    own = [handler for handler in logger.handlers if not isinstance(handler, _ToPeople)]
    return bool(own or logging.getLogger().handlers)


logger.addHandler(_ToPeople())
