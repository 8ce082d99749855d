"""Sends messages to one collector, over HTTP or gRPC, until it has taken them or the time is up."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from akka_otel_callbacks.common.export.acceptance import Acceptance, Reply
from akka_otel_callbacks.common.export.otlp.settings import HTTP, PLAIN, OtlpSettings
from akka_otel_callbacks.common.export.signals import LOGS, METRICS, TRACES
from akka_otel_callbacks.common.log import logger

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget

REQUESTS: dict[str, type[Message]] = {
    METRICS: ExportMetricsServiceRequest,
    TRACES: ExportTraceServiceRequest,
    LOGS: ExportLogsServiceRequest,
}
REPLIES: dict[type[Message], type[Message]] = {
    ExportMetricsServiceRequest: ExportMetricsServiceResponse,
    ExportTraceServiceRequest: ExportTraceServiceResponse,
    ExportLogsServiceRequest: ExportLogsServiceResponse,
}
MOST_TRIES = 6
MAY_REFUSE_COMPRESSION = ("400", "406", "415", "422", "500", "501", "UNIMPLEMENTED", "INTERNAL")
"""The kinds of a reply to a message that the receiver cannot unpack, or cannot read."""


class Sender(Protocol):
    """A transport: HTTP or gRPC."""

    def send(self, message: Message, reply_type: type[Message], timeout_s: float, compression: str) -> Reply: ...

    def close(self) -> None: ...


def _sender(settings: OtlpSettings) -> Sender:
    if settings.protocol == HTTP:
        from akka_otel_callbacks.common.export.otlp.http import HttpSender

        return HttpSender(settings)
    from akka_otel_callbacks.common.export.otlp.grpc import GrpcSender

    return GrpcSender(settings)


class Delivery:
    """Sends one signal's exports. It tries again while the time allows, and says how each export ended."""

    def __init__(self, target: OtlpTarget) -> None:
        self._target = target
        self._timeout_s = target.settings.timeout_s
        self._sender = _sender(target.settings)
        self._compression = target.settings.compression
        self._is_unpacked = False
        """Whether the receiver has taken something compressed."""
        server = urlsplit(target.endpoint).netloc or target.endpoint
        self._acceptance = Acceptance.of(f"{target.settings.protocol} {server}")
        self._jitter = random.Random()
        self._closed = False
        self._hurried = threading.Event()
        self.reply: Reply | None = None
        """The reply to the last attempt of the newest export. None before the first."""

    def __call__(self, message: Message) -> bool:
        """Sends a message, and says whether the receiver took all of it."""
        self.reply = None
        reply = self._tried(message)
        self._acceptance.tell(self, self._target, reply)
        return reply.delivered

    def once(self, message: Message, timeout_s: float) -> Reply:
        """Makes one attempt and tells nobody. A receiver that refuses a compressed message, and takes it uncompressed,
        gets everything uncompressed from then on."""
        deadline = time.monotonic() + timeout_s
        reply = self._sent(message, timeout_s, self._compression)
        self._is_unpacked |= reply.delivered
        if self._is_unpacked or self._compression == PLAIN or reply.kind not in MAY_REFUSE_COMPRESSION:
            return reply
        plain = self._sent(message, max(deadline - time.monotonic(), 0.001), PLAIN)
        if plain.delivered:
            logger.info("%s does not take %s and gets it uncompressed", self._target, self._compression)
            self._compression = PLAIN
        return plain

    def _sent(self, message: Message, timeout_s: float, compression: str) -> Reply:
        """Sends it without making the request a span, even if the program has its HTTP client or gRPC instrumented."""
        context = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            return self._sender.send(message, REPLIES[type(message)], timeout_s, compression)
        finally:
            detach(context)

    def hurry(self) -> None:
        """Has the next attempt follow at once, because the time is running out."""
        self._hurried.set()

    def close(self) -> None:
        self._closed = True
        self.hurry()
        self._sender.close()
        self._acceptance.forget(self)

    def _tried(self, message: Message) -> Reply:
        deadline = time.monotonic() + self._timeout_s
        reconnects = 1
        for attempt in range(MOST_TRIES):
            reply = self.reply = self.once(message, max(deadline - time.monotonic(), 0.001))
            if reply.kind == "connection" and reconnects:  # one that was kept open may have been lost meanwhile
                reconnects, pause_s = 0, 0.0
            else:
                pause_s = self._pause_s(reply, attempt)
            if reply.delivered or not reply.retryable or time.monotonic() + pause_s > deadline:
                return reply
            self._hurried.wait(pause_s)
            self._hurried.clear()
            if self._closed:
                break
        return reply

    def _pause_s(self, reply: Reply, attempt: int) -> float:
        if reply.retry_after_s is not None:
            return reply.retry_after_s
        return float(2**attempt) * self._jitter.uniform(0.8, 1.2)
