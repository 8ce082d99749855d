"""The OTLP message of metrics: the SDK's, but for the gauges, which have a point for every step. By way of a protobuf
object, a point takes ten times as long."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.sdk.metrics.export import Gauge, MetricsData, ScopeMetrics

from akka_otel_callbacks.common.export.courses import Course, Courses

FIELDS = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
"""The protobuf field of an attribute's value, by its type. The first that fits is used."""
DATA_POINTS, TIME, DOUBLE, INTEGER = b"\x0a", b"\x19", b"\x21", b"\x31"
"""The tags by which protobuf begins a gauge's `data_points`, and a point's `time_unix_nano`, `as_double` and
`as_int`."""
WITH_DOUBLE, WITH_INTEGER = struct.Struct("<cQcd"), struct.Struct("<cQcq")
"""How a point's time and value are packed."""


def metrics_request(data: MetricsData) -> ExportMetricsServiceRequest:
    """The message for a collector. The SDK encodes the resource, the scopes and everything but the gauges."""
    others = [
        replace(resource, scope_metrics=[_without_gauges(scope) for scope in resource.scope_metrics])
        for resource in data.resource_metrics
    ]
    request = encode_metrics(MetricsData(others))
    for resource, of_resource in zip(data.resource_metrics, request.resource_metrics, strict=True):
        for scope, of_scope in zip(resource.scope_metrics, of_resource.scope_metrics, strict=True):
            for metric in scope.metrics:
                if isinstance(metric.data, Gauge):
                    written = of_scope.metrics.add(name=metric.name, description=metric.description, unit=metric.unit)
                    written.gauge.MergeFromString(b"".join(map(_points, Courses.of(metric.data.data_points).series())))
    return request


def _without_gauges(scope: ScopeMetrics) -> ScopeMetrics:
    return replace(scope, metrics=[metric for metric in scope.metrics if not isinstance(metric.data, Gauge)])


def _points(course: Course) -> bytes:
    """The points of one series in protobuf's form. They differ only in time and value, which have a fixed width."""
    attributes = metrics_pb2.NumberDataPoint(attributes=labels(course.attributes)).SerializeToString()
    head = DATA_POINTS + _varint(len(attributes) + WITH_DOUBLE.size)
    return b"".join(
        [
            head
            + (
                WITH_INTEGER.pack(TIME, time_ns, INTEGER, value)
                if isinstance(value, int)
                else WITH_DOUBLE.pack(TIME, time_ns, DOUBLE, value)
            )
            + attributes
            for time_ns, value in zip(course.times_ns, course.values, strict=True)
        ]
    )


def _varint(number: int) -> bytes:
    """A number in protobuf's form: seven bits a byte, the lowest first. The eighth bit says that more follow."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def labels(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes in protobuf's form. Each value is text, a number or a truth value."""
    return [KeyValue(key=key, value=AnyValue(**{_field(value): value})) for key, value in attributes.items()]


def _field(value: Any) -> str:
    return next(field for kind, field in FIELDS.items() if isinstance(value, kind))
