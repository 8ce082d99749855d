"""The embedded default: OTLP/JSON lines on disk, one signal per file, as the OTLP file exporter specification has them.

A Collector's `otlpjsonfile` receiver can ingest the files later, and `akka-otel show` reads them at once.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from akka_otel_callbacks.common.log import logger

ID_FIELDS = ("traceId", "spanId", "parentSpanId")


class JsonLines:
    """A file that is opened at the first line, on the thread that writes, and never left with half a line."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a program may change its folder before the first line
        self.failed = 0
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()

    def write(self, document: dict[str, Any]) -> bool:
        """Appends one line. A disk that refuses costs one warning; the lines before stay whole and the next line is
        tried again, since a full disk may be freed."""
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                self._complain(error)
                return False
        return True

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
        if self.failed > 1:
            logger.warning("%s: %d exports in all could not be written", self.path, self.failed)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab+", buffering=0)  # noqa: SIM115 - stays open for the run
            line = _line_break(self._file) + line
        end = self._file.seek(0, 2)
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes could be written; is the disk full?")
        except OSError:
            self._file.truncate(end)
            raise

    def _complain(self, error: OSError) -> None:
        self.failed += 1
        if self.failed == 1:
            logger.warning(
                "cannot write telemetry to %s: %s. Training goes on without it; set AKKA_OTEL_DIR to a folder that can "
                "be written, or OTEL_EXPORTER_OTLP_ENDPOINT to a collector.",
                self.path,
                error,
            )


def _line_break(file: BinaryIO) -> bytes:
    """What ends the half line that a machine's crash left, so that it does not take the next line with it."""
    if not file.seek(0, 2):
        return b""
    file.seek(-1, 2)
    return b"" if file.read(1) == b"\n" else b"\n"


class MetricFile(MetricExporter):
    """Appends one `{"resourceMetrics": …}` document per export, cumulative."""

    def __init__(self, path: Path) -> None:
        super().__init__(preferred_temporality=dict.fromkeys(_instrument_types(), AggregationTemporality.CUMULATIVE))
        self._lines = JsonLines(path)

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        document = MessageToDict(encode_metrics(metrics_data), use_integers_for_enums=True)
        written = self._lines.write(document)
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
        document = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
        written = self._lines.write(_hex_ids(document))
        return SpanExportResult.SUCCESS if written else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._lines.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


def _hex_ids(value: Any) -> Any:
    """OTLP/JSON writes trace and span IDs in hex, where plain protobuf JSON would write base64."""
    if isinstance(value, list):
        return [_hex_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            key: base64.b64decode(item).hex() if key in ID_FIELDS else _hex_ids(item) for key, item in value.items()
        }
    return value


def _instrument_types() -> tuple[type, ...]:
    from opentelemetry.sdk import metrics

    return (
        metrics.Counter,
        metrics.UpDownCounter,
        metrics.Histogram,
        metrics.ObservableCounter,
        metrics.ObservableUpDownCounter,
        metrics.ObservableGauge,
    )
