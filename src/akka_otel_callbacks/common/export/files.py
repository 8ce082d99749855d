"""The embedded default: OTLP/JSON lines on disk, one signal per file, as the OTLP file exporter specification has them.

A Collector's `otlpjsonfile` receiver can ingest the files later, and `akka-otel show` reads them at once.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from akka_otel_callbacks.common.export.json_lines import JsonLines
from akka_otel_callbacks.common.export.otlp.json import document

if TYPE_CHECKING:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

ID_FIELDS = ("traceId", "spanId", "parentSpanId")


class MetricFile(MetricExporter):
    """Appends one `{"resourceMetrics": …}` document per export, with cumulative totals: it asks for no deltas."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._lines = JsonLines(path)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        written = self._lines.write_text(document(metrics_data))
        return MetricExportResult.SUCCESS if written else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._lines.close()


class SpanFile(SpanExporter):
    """Appends one `{"resourceSpans": …}` document per export."""

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        message = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        written = self._lines.write(_hex_ids(message))
        return SpanExportResult.SUCCESS if written else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._lines.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


class LogFile:
    """Appends one `{"resourceLogs": …}` document per export."""

    def __init__(self, path: Path) -> None:
        self._lines = JsonLines(path)

    def export(self, request: ExportLogsServiceRequest) -> bool:
        return self._lines.write(log_document(request))

    def hurry(self) -> None: ...

    def close(self) -> None:
        self._lines.close()


def log_document(request: ExportLogsServiceRequest) -> dict[str, Any]:
    """Log records in OTLP/JSON."""
    return cast(dict[str, Any], _hex_ids(MessageToDict(request, use_integers_for_enums=True)))


def _hex_ids(value: Any) -> Any:
    """OTLP/JSON writes trace and span IDs in hex, where plain protobuf JSON would write base64."""
    if isinstance(value, list):
        return [_hex_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item).hex() if key in ID_FIELDS else _hex_ids(item) for key, item in value.items()
        }
    return value
