"""The OTLP message of log records. The SDK's classes of them change from version to version; the message does not."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics

from akka_otel_callbacks.common.export.otlp.message import labels
from akka_otel_callbacks.common.logs.record import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import SpanContext

SEVERITIES: Mapping[int, tuple[int, str]] = {
    logging.DEBUG: (5, "DEBUG"),
    logging.INFO: (9, "INFO"),
    logging.WARNING: (13, "WARN"),
    logging.ERROR: (17, "ERROR"),
    logging.CRITICAL: (21, "FATAL"),
}
"""OTLP's number and name of each of `logging`'s levels."""

HAS_EVENTS = "event_name" in LogRecord.DESCRIPTOR.fields_by_name
"""Messages before OTLP 1.5 have no name of the event."""


def logs_request(
    records: Sequence[Record], resource: Resource, place: SpanContext, scope: str
) -> ExportLogsServiceRequest:
    """What is sent.

    Args:
        records: in the order of their times.
        resource: who the process is.
        place: the span that they belong to. They get no IDs where it is not valid.
        scope: who wrote them.
    """
    found = ScopeLogs(
        scope=InstrumentationScope(name=scope), log_records=[_record(record, place) for record in records]
    )
    (encoded,) = encode_metrics(MetricsData([ResourceMetrics(resource, [], "")])).resource_metrics
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=encoded.resource, scope_logs=[found])])


def _record(record: Record, place: SpanContext) -> LogRecord:
    number, text = SEVERITIES[min(max(record.severity // 10 * 10, logging.DEBUG), logging.CRITICAL)]
    of_trace: dict[str, Any] = {}
    if place.is_valid:
        of_trace = {
            "trace_id": place.trace_id.to_bytes(16, "big"),
            "span_id": place.span_id.to_bytes(8, "big"),
            "flags": int(place.trace_flags),
        }
    written = LogRecord(
        time_unix_nano=record.time_ns,
        observed_time_unix_nano=record.time_ns,
        severity_number=number,  # type: ignore[arg-type]  # an enum in the stubs
        severity_text=text,
        attributes=labels(record.attributes),
        **of_trace,
    )
    written.body.string_value = record.body
    if record.event and HAS_EVENTS:
        written.event_name = record.event
    return written
