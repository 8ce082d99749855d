"""What we make of metrics in OTLP's two forms, against what the SDK and protobuf make of the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    Gauge,
    Histogram,
    InMemoryMetricReader,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from akka_otel_callbacks.common.export.courses import Courses
from akka_otel_callbacks.common.export.otlp.json import document
from akka_otel_callbacks.common.export.otlp.message import metrics_request
from akka_otel_callbacks.common.recording.distributions import Explicit, Exponential, numbers_of
from akka_otel_callbacks.common.vocabulary.points import Attributes

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
RESOURCE = Resource({"text": "é", "int": 7, "float": 0.5, "bool": True, "list": ("a", "b")}, "https://schema")

texts = st.text(st.characters(codec="utf-8"), max_size=5)
integers = st.integers(-(2**63), 2**63 - 1)
attributes = st.dictionaries(texts.filter(bool), st.one_of(texts, integers, st.floats(), st.booleans()), max_size=3)
times = st.integers(0, 2**63)
numbers = st.builds(NumberDataPoint, attributes, times, times, st.one_of(st.floats(), integers))
series = st.tuples(
    st.one_of(attributes, st.fixed_dictionaries({"long": st.text("é", min_size=40, max_size=200)})),
    st.lists(st.tuples(times, st.one_of(st.floats(), integers)), min_size=1, max_size=3),
)
values = st.lists(st.one_of(st.floats(-5, 1e9), st.floats(allow_nan=False, allow_infinity=False)), max_size=20)
explicit = st.builds(
    lambda values, labels, start, end: Explicit.of(numbers_of(values).finite, (0.0, 0.5, 1.0)).point(
        labels, start, end
    ),
    values,
    attributes,
    times,
    times,
)
exponential = st.builds(
    lambda values, labels, start, end: Exponential.of(numbers_of(values).finite).point(labels, start, end),
    values,
    attributes,
    times,
    times,
)
temporalities = st.sampled_from([CUMULATIVE, DELTA])
data = st.one_of(
    st.builds(Gauge, st.lists(numbers, min_size=1, max_size=3)),
    st.builds(lambda *series: Gauge(courses(*series)), series, series),
    st.builds(Sum, st.lists(numbers, min_size=1, max_size=3), temporalities, st.booleans()),
    st.builds(Histogram, st.lists(explicit, min_size=1, max_size=3), temporalities),
    st.builds(ExponentialHistogram, st.lists(exponential, min_size=1, max_size=3), temporalities),
)
metrics = st.lists(st.builds(Metric, texts, texts, texts, data), max_size=3)


def courses(*series: tuple[Attributes, Sequence[tuple[int, float]]]) -> Courses:
    found = Courses()
    for attributes, values in series:
        for time_ns, value in values:
            found.add(time_ns, [(value, attributes)])
    return found


def by_protobuf(data: MetricsData) -> Any:
    return MessageToDict(encode_metrics(data), use_integers_for_enums=True)


def whole(metrics: Sequence[Metric], scope: InstrumentationScope | None = None) -> MetricsData:
    scope = scope or InstrumentationScope("scope", "1.0", "https://schema", {"a": 1})
    return MetricsData([ResourceMetrics(RESOURCE, [ScopeMetrics(scope, metrics, "")], "")])


ZERO = [("timeUnixNano", "0"), ("startTimeUnixNano", "0"), ("count", "0")]


def comparable(value: Any) -> Any:
    """What readers take for the same: a field that is not there, and one that holds nothing."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items() if item != [] and (key, item) not in ZERO}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def by_name(request: ExportMetricsServiceRequest) -> Any:
    """Nobody minds the order of metrics; the gauges come last in ours."""
    written = MessageToDict(request)
    for resource in written.get("resourceMetrics", ()):
        for scope in resource["scopeMetrics"]:
            scope["metrics"] = sorted(scope.get("metrics", []), key=lambda metric: "gauge" in metric)
    return comparable(written)


@given(metrics)
def test_it_is_the_message_of_the_sdk(metrics: list[Metric]) -> None:
    data = whole(metrics)
    assert by_name(metrics_request(data)) == by_name(encode_metrics(data))


@given(metrics)
def test_it_is_the_document_of_the_message(metrics: list[Metric]) -> None:
    data = whole(metrics)
    assert comparable(json.loads(document(data))) == comparable(by_protobuf(data))


def test_it_is_the_document_of_what_the_sdk_collects() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], RESOURCE, shutdown_on_exit=False).get_meter("test")
    meter.create_counter("counter", "{step}", "Steps.").add(3, {"a": "b"})
    meter.create_up_down_counter("updown").add(-2.5)
    meter.create_gauge("gauge").set(1)
    meter.create_histogram("histogram").record(7.5)
    data = reader.get_metrics_data()
    assert data is not None
    assert by_name(metrics_request(data)) == by_name(encode_metrics(data))
    assert comparable(json.loads(document(data))) == comparable(by_protobuf(data))


class Float64(float):
    """As numpy's, which is a float and does not look like one."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)})"


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 2, Float64(0.5)])
def test_one_odd_number_among_others(odd: float) -> None:
    data = whole([Metric("gauge", "", "", Gauge(courses(({}, [(1, 0.5), (2, odd), (3, 1e308), (4, 1e308)]))))])
    assert comparable(json.loads(document(data))) == comparable(by_protobuf(data))


@pytest.mark.parametrize("data", [MetricsData([]), whole([])])
def test_nothing_is_a_message_and_a_document_too(data: MetricsData) -> None:
    assert by_name(metrics_request(data)) == by_name(encode_metrics(data))
    assert comparable(json.loads(document(data))) == comparable(by_protobuf(data))
