"""OTLP messages as plain values: what a test reads instead of protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans


@dataclass(frozen=True)
class Histogram:
    """One histogram point. An exponential one has `scale` and no `bounds`; its `counts` then go by bucket index."""

    count: int
    sum: float | None
    min: float | None
    max: float | None
    counts: tuple[int, ...]
    bounds: tuple[float, ...] = ()
    scale: int | None = None
    offset: int = 0
    zero_count: int = 0


@dataclass(frozen=True)
class Point:
    """One data point as it arrived: the first export that a receiver gets has `export` 0, and so on."""

    name: str
    kind: str  # gauge, sum, histogram, exponential_histogram
    unit: str
    description: str
    value: float | int | None
    histogram: Histogram | None
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: str
    start_ns: int
    time_ns: int
    monotonic: bool = False
    cumulative: bool = False
    export: int = 0


@dataclass(frozen=True)
class SpanRecord:
    """One span as it arrived, its ids in hex as they appear in a `traceparent`."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    status: int  # 0 unset, 1 ok, 2 error
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())


@dataclass(frozen=True)
class LogLine:
    """One log record as it arrived, its ids in hex."""

    body: str
    event: str
    severity: str
    severity_number: int
    time_ns: int
    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: str


def points_of(resources: Iterable[ResourceMetrics], export: int = 0) -> Iterator[Point]:
    """Every data point of one export, in the order in which it was written."""
    for resource_metrics in resources:
        resource = plain(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    yield Point(
                        name=metric.name,
                        kind=kind,
                        unit=metric.unit,
                        description=metric.description,
                        value=_value(point) if kind in ("gauge", "sum") else None,
                        histogram=_histogram(metric, point),
                        attributes=plain(point.attributes),
                        resource=resource,
                        scope=scope_metrics.scope.name,
                        start_ns=point.start_time_unix_nano,
                        time_ns=point.time_unix_nano,
                        monotonic=getattr(data, "is_monotonic", False),
                        cumulative=getattr(data, "aggregation_temporality", 0) == 2,
                        export=export,
                    )


def newest(points: Sequence[Point]) -> list[Point]:
    """What one export shows at its own time, without the points of the steps before."""
    latest_ns = max((point.time_ns for point in points), default=0)
    return [point for point in points if point.time_ns == latest_ns]


def spans_of(resources: Iterable[ResourceSpans]) -> Iterator[SpanRecord]:
    """Every span of one export, in the order in which it was written."""
    for resource_spans in resources:
        resource = plain(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield SpanRecord(
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_span_id=span.parent_span_id.hex(),
                    trace_state=span.trace_state,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    status=span.status.code,
                    attributes=plain(span.attributes),
                    resource=resource,
                    events=tuple((event.name, plain(event.attributes)) for event in span.events),
                )


def log_lines_of(resources: Iterable[ResourceLogs]) -> Iterator[LogLine]:
    """Every log record of one export, in the order in which it was written."""
    for resource_logs in resources:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield LogLine(
                    body=record.body.string_value,
                    event=getattr(record, "event_name", ""),
                    severity=record.severity_text,
                    severity_number=record.severity_number,
                    time_ns=record.time_unix_nano,
                    trace_id=record.trace_id.hex(),
                    span_id=record.span_id.hex(),
                    attributes=plain(record.attributes),
                    resource=plain(resource_logs.resource.attributes),
                    scope=scope_logs.scope.name,
                )


def plain(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """OTLP attributes as a dict of Python values."""
    return {attribute.key: _any(attribute.value) for attribute in attributes}


def _any(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_any(item) for item in value.array_value.values)
    return None if kind is None else getattr(value, kind)


def _value(point: Any) -> float | int:
    return getattr(point, point.WhichOneof("value"))


def _histogram(metric: Metric, point: Any) -> Histogram | None:
    kind = metric.WhichOneof("data")
    if kind not in ("histogram", "exponential_histogram"):
        return None
    optional = {name: getattr(point, name) if point.HasField(name) else None for name in ("sum", "min", "max")}
    if kind == "histogram":
        return Histogram(
            count=point.count, counts=tuple(point.bucket_counts), bounds=tuple(point.explicit_bounds), **optional
        )
    return Histogram(
        count=point.count,
        counts=tuple(point.positive.bucket_counts),
        scale=point.scale,
        offset=point.positive.offset,
        zero_count=point.zero_count,
        **optional,
    )
