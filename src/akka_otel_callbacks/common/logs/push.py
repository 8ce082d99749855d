"""Log records on their way to one exporter."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.logs.record import Record
from akka_otel_callbacks.common.threads import ExportLoop

if TYPE_CHECKING:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import SpanContext

MOST_WAITING = 1000
"""Records that wait while nobody takes them. The newest are kept, which say how it ended."""
INTERVAL_S, PAUSE_S = 60.0, 1.0


class LogExporter(Protocol):
    """One place that log records go to."""

    def export(self, request: ExportLogsServiceRequest) -> bool:
        """Sends a message, and says whether all of it arrived."""

    def hurry(self) -> None:
        """Has the next attempt follow at once, because the time is running out."""

    def close(self) -> None: ...


class LogPush:
    """Sends records soon after they come, and sends those again that did not arrive.

    Args:
        exporter: takes them.
        target: where it sends them to, in words.
        resource: who the process is.
        place: the span that they belong to.
        scope: who writes them.
    """

    def __init__(
        self, exporter: LogExporter, target: object, resource: Resource, place: SpanContext, scope: str
    ) -> None:
        self._exporter, self._target = exporter, target
        self._resource, self._place, self._scope = resource, place, scope
        self._waiting: deque[Record] = deque()
        self._changing = threading.Lock()
        self._dropped = self._sending = 0
        self.loop = ExportLoop(self._export, exporter.close, INTERVAL_S, PAUSE_S)

    def add(self, line: logging.LogRecord) -> None:
        """Takes a line. Any thread may call it."""
        with self._changing:
            self._waiting.append(Record.of(line))
            self._drop()
        self.loop.step_reported()

    def hurry(self) -> None:
        """See `LogExporter.hurry`."""
        self._exporter.hurry()

    def say_what_is_missing(self) -> None:
        """Once the loop has ended, or has no more time."""
        if lost := self._dropped + self._sending + len(self._waiting):
            logger.warning("%d log records were not sent to %s", lost, self._target)

    def _export(self) -> bool:
        from akka_otel_callbacks.common.logs.message import logs_request

        with self._changing:
            taken, self._waiting = self._waiting, deque()
            self._sending = len(taken)
        if not taken:
            return True
        arrived = self._exporter.export(logs_request(taken, self._resource, self._place, self._scope))
        with self._changing:
            self._sending = 0
            if not arrived:
                self._waiting.extendleft(reversed(taken))
                self._drop()
        return arrived

    def _drop(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
