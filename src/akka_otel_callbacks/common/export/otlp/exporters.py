"""The OTLP exporters, of metrics, spans and log records, over HTTP and gRPC.

The messages are the SDK's; sending them is ours. The SDK's exporters count a redirect as delivered and do not read that
a collector rejected everything, read replies of any size, log the headers that they cannot use, and print a traceback
for each attempt in some versions. They also draw from the random numbers that a training seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk import metrics
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from akka_otel_callbacks.common.export.acceptance import REJECTED, Reply
from akka_otel_callbacks.common.export.otlp.delivery import Delivery
from akka_otel_callbacks.common.export.otlp.message import metrics_request

if TYPE_CHECKING:
    from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget

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
