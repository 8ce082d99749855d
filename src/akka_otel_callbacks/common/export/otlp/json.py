"""OTLP/JSON of metrics. Gauges, which have a point for every step, are written as text: by way of protobuf, or of a
dictionary for each point, they take ten times as long."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics.export import (
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    Sum,
)

from akka_otel_callbacks.common.export.courses import Course, Courses
from akka_otel_callbacks.common.numbers import are_finite

Json = dict[str, Any]


def document(data: MetricsData) -> str:
    """The `{"resourceMetrics": …}` document, equal to that of the protobuf message. The resource and the scopes, which
    may hold anything, are left to the SDK."""
    empty = [
        replace(resource, scope_metrics=[replace(scope, metrics=[]) for scope in resource.scope_metrics])
        for resource in data.resource_metrics
    ]
    written = MessageToDict(encode_metrics(MetricsData(empty)), use_integers_for_enums=True)
    resources = []
    for resource, of_resource in zip(data.resource_metrics, written.get("resourceMetrics", ()), strict=True):
        scopes = [
            _object(of_scope, metrics=_array(map(_metric, scope.metrics)))
            for scope, of_scope in zip(resource.scope_metrics, of_resource.get("scopeMetrics", ()), strict=True)
        ]
        resources.append(_object(of_resource, scopeMetrics=_array(scopes)))
    return _object({}, resourceMetrics=_array(resources))


def _object(fields: Json, **written: str) -> str:
    """A JSON object of the fields. Those in `written` are JSON already, and replace others of their name."""
    members = {key: _text(value) for key, value in fields.items()} | written
    return "{" + ",".join(f'"{key}":{value}' for key, value in members.items()) + "}"


def _array(items: Iterable[str]) -> str:
    return "[" + ",".join(items) + "]"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _metric(metric: Metric) -> str:
    texts = {"name": metric.name, "description": metric.description, "unit": metric.unit}
    fields = {key: text for key, text in texts.items() if text}
    if isinstance(metric.data, Gauge):
        points = _array(map(_points, Courses.of(metric.data.data_points).series()))
        return _object(fields, gauge=_object({}, dataPoints=points))
    return _object({**fields, **_data(metric.data)})


def _points(course: Course) -> str:
    """The points of one series as JSON. They differ in time and value only."""
    end = f',"attributes":{_text(_attributes(course.attributes))}}}' if course.attributes else "}"
    are_plain = {*map(type, course.values)} == {float} and are_finite(course.values)
    numbers = map(repr if are_plain else _number, course.values)
    name = '"asDouble":' if are_plain else ""
    return ",".join(
        [
            f'{{"timeUnixNano":"{time_ns}",{name}{number}{end}'
            for time_ns, number in zip(course.times_ns, numbers, strict=True)
        ]
    )


def _number(value: float) -> str:
    if isinstance(value, int):
        return f'"asInt":"{int(value)}"'
    return f'"asDouble":{float(value)!r}' if math.isfinite(value) else f'"asDouble":"{_double(value)}"'


def _data(data: Any) -> Json:
    if isinstance(data, Sum):
        points = {"dataPoints": [_total(point) for point in data.data_points]}
        monotonic = {"isMonotonic": True} if data.is_monotonic else {}
        return {"sum": {**points, "aggregationTemporality": int(data.aggregation_temporality), **monotonic}}
    kinds: dict[type, tuple[str, Any]] = {
        Histogram: ("histogram", _explicit),
        ExponentialHistogram: ("exponentialHistogram", _exponential),
    }
    kind, write = kinds[type(data)]
    points = {"dataPoints": [write(point) for point in data.data_points]}
    return {kind: {**points, "aggregationTemporality": int(data.aggregation_temporality)}}


def _total(point: NumberDataPoint) -> Json:
    value = point.value
    written: Json = {"timeUnixNano": str(point.time_unix_nano)}
    if isinstance(value, int):
        written["asInt"] = str(int(value))
    else:
        written["asDouble"] = _double(value)
    if point.start_time_unix_nano:
        written["startTimeUnixNano"] = str(point.start_time_unix_nano)
    if point.attributes:
        written["attributes"] = _attributes(point.attributes)
    return written


def _explicit(point: HistogramDataPoint) -> Json:
    return {
        **_summary(point),
        "bucketCounts": [*map(str, point.bucket_counts)],
        "explicitBounds": [*map(_double, point.explicit_bounds)],
    }


def _exponential(point: ExponentialHistogramDataPoint) -> Json:
    numbers = {"scale": point.scale, "zeroCount": str(point.zero_count) if point.zero_count else 0}
    sides = {"positive": _side(point.positive), "negative": _side(point.negative)}
    return {**_summary(point), **{key: value for key, value in {**numbers, **sides}.items() if value}}


def _side(buckets: Buckets) -> Json:
    if not buckets.bucket_counts:
        return {}
    offset = {"offset": buckets.offset} if buckets.offset else {}
    return {**offset, "bucketCounts": [*map(str, buckets.bucket_counts)]}


def _summary(point: HistogramDataPoint | ExponentialHistogramDataPoint) -> Json:
    written: Json = {
        "timeUnixNano": str(point.time_unix_nano),
        "startTimeUnixNano": str(point.start_time_unix_nano),
        "count": str(point.count),
    }
    optional = {"sum": point.sum, "min": point.min, "max": point.max}
    written |= {key: _double(value) for key, value in optional.items() if value is not None}
    if point.attributes:
        written["attributes"] = _attributes(point.attributes)
    return written


def _attributes(attributes: Mapping[str, Any]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> Json:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": _double(value)}


def _double(value: float) -> float | str:
    """A number as JSON. JSON has no word for a number that is not finite, but protobuf's JSON has these."""
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
