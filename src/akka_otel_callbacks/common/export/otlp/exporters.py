"""The OTLP exporters, of metrics, spans and log records, over HTTP and gRPC.

The messages are the SDK's; sending them is ours. The SDK's exporters count a redirect as delivered and do not read that
a collector rejected everything, read replies of any size, log the headers that they cannot use, and print a traceback
for each attempt in some versions. They also draw from the random numbers that a training seeds.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk import metrics
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from akka_otel_callbacks.common.export.delivery import REJECTED, Acceptance, Reply
from akka_otel_callbacks.common.export.otlp.message import metrics_request
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
CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
DELTAS = {
    "cumulative": (),
    "delta": (metrics.Counter, metrics.ObservableCounter, metrics.Histogram),
    "lowmemory": (metrics.Counter, metrics.Histogram),
}
"""The instruments that export differences, by the value of `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`."""
INSTRUMENTS = (
    metrics.Counter,
    metrics.UpDownCounter,
    metrics.Histogram,
    metrics.ObservableCounter,
    metrics.ObservableUpDownCounter,
    metrics.ObservableGauge,
)


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
        """Where a program has its HTTP client or gRPC instrumented, the request is no span of it."""
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


class OtlpMetrics(MetricExporter):
    """Sends metrics to a collector."""

    def __init__(self, target: OtlpTarget) -> None:
        deltas = DELTAS[target.settings.temporality]
        super().__init__(preferred_temporality={kind: DELTA if kind in deltas else CUMULATIVE for kind in INSTRUMENTS})
        self.delivery = Delivery(target)

    @property
    def reply(self) -> Reply | None:
        """The collector's reply to the last attempt of the newest export. None before the first reply."""
        return self.delivery.reply

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        delivered = self.delivery(metrics_request(metrics_data))
        return MetricExportResult.SUCCESS if delivered else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Ends the pause before another attempt, and does not wait."""
        self.delivery.hurry()
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self.delivery.close()


class OtlpSpans(SpanExporter):
    """Sends spans to a collector."""

    def __init__(self, target: OtlpTarget) -> None:
        self.delivery = Delivery(target)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        delivered = self.delivery(encode_spans(spans))
        return SpanExportResult.SUCCESS if delivered else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self) -> None:
        self.delivery.close()


class OtlpLogs:
    """Sends log records to a collector."""

    def __init__(self, target: OtlpTarget) -> None:
        self.delivery = Delivery(target)

    def export(self, request: ExportLogsServiceRequest) -> bool:
        """Sends the records. True if they must not be sent again: they arrived, or the collector rejected some of them
        and would reject these again."""
        if self.delivery(request):
            return True
        reply = self.delivery.reply
        return reply is not None and reply.kind == REJECTED

    def hurry(self) -> None:
        self.delivery.hurry()

    def close(self) -> None:
        self.delivery.close()
