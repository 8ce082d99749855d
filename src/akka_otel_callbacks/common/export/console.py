"""Where the console exporters write: stdout, which may be closed."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from akka_otel_callbacks.common.log import logger

if TYPE_CHECKING:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

kept: TextIO | None = None
"""If set, the exporters write to this stream instead of the current stdout. A program sets it that hides what others
write to stdout."""


class Stdout:
    """Whatever stdout is at the moment, for an exporter's `out`. If it cannot be written, one warning says so, and
    nothing raises. It writes past Python's buffer: text that stays in there when a pipe breaks would break the
    program's own exit.
    """

    def __init__(self) -> None:
        self._lost = False

    def write(self, text: str) -> int:
        stream = kept or sys.stdout
        try:
            if stream is not None:
                _write(stream, text)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            if not self._lost:
                self._lost = True
                logger.warning("stdout cannot be written, so the console exporter stops: %s", error)
        return len(text)

    def flush(self) -> None:
        """Does nothing, because nothing is kept."""


class ConsoleLogs:
    """Writes log records as OTLP/JSON, a line for each export."""

    def __init__(self) -> None:
        self._out = Stdout()

    def export(self, request: ExportLogsServiceRequest) -> bool:
        from akka_otel_callbacks.common.export.files import log_document

        self._out.write(json.dumps(log_document(request)) + "\n")
        return True

    def hurry(self) -> None: ...

    def close(self) -> None: ...


def _write(stream: Any, text: str) -> None:
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):  # a notebook's, a test's
        stream.write(text)
        stream.flush()
        return
    stream.flush()
    left = text.encode(stream.encoding or "utf-8", errors="replace")
    while left:
        left = left[os.write(descriptor, left) :]
