"""Histograms of values that belong to no step: every exporter has each value once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.export.instruments import measure, views
from akka_otel_callbacks.common.export.producer import Producer, Run
from akka_otel_callbacks.common.recording import measured
from akka_otel_callbacks.common.recording.distributions import Explicit, Exponential
from akka_otel_callbacks.common.recording.measured import MOST_WAITING, Measured, Tally
from akka_otel_callbacks.common.recording.observed import Observed
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.reports import Report
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Histogram, points_of

Start = Callable[..., Telemetry]
METRIC, PHASE = names.RUN_PHASE_DURATION, names.ATTR_RUN_PHASE.name
TRAINING, QUEUED = {PHASE: names.RunPhase.TRAINING}, {PHASE: names.RunPhase.QUEUED}


def run() -> Run:
    return Run(Resource({}), 1, Observed(), measured=Measured())


def histograms(data: Any) -> dict[Any, Histogram]:
    """By metric and the series' first attribute."""
    found = [] if data is None else points_of(encode_metrics(data).resource_metrics)
    return {(point.name, *point.attributes.values()): point.histogram for point in found if point.histogram}


@given(st.lists(st.tuples(st.sampled_from([TRAINING, QUEUED]), st.floats(0, 1e7)), min_size=1))
@pytest.mark.parametrize("metric", [METRIC, names.RL_ROLLOUT_COMPLETION_LENGTH], ids=lambda metric: metric.name)
def test_the_values_are_counted_as_the_sdk_counts_them(metric: Metric, values: list[tuple[Any, float]]) -> None:
    ours = run()
    producer = Producer(ours)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], views=views(), shutdown_on_exit=False).get_meter("test")
    for attributes, value in values:
        ours.measured.record(metric, value, attributes)
        measure(meter, metric, value, attributes)
    found, expected = histograms(producer.collect()), histograms(reader.get_metrics_data())
    assert found.keys() == expected.keys()
    for series, histogram in expected.items():
        same = found[series]
        assert (same.count, same.min, same.max) == (histogram.count, histogram.min, histogram.max)
        assert same.sum == pytest.approx(histogram.sum)
        assert same.bounds == histogram.bounds
        if not metric.exponential:
            assert same.counts == histogram.counts


@given(st.lists(st.sampled_from(["value", "sent", "lost"])))
def test_changes_add_up_whatever_exports_fail(events: list[str]) -> None:
    ours = run()
    deltas, totals = Producer(ours, deltas=frozenset({Kind.HISTOGRAM})), Producer(ours)
    arrived = recorded = 0
    for event in [*events, "sent"]:
        if event == "value":
            recorded += 1
            ours.measured.record(METRIC, 1.0, TRAINING)
            continue
        change = histograms(deltas.collect())
        total = histograms(totals.collect())
        assert sum(histogram.count for histogram in total.values()) == recorded
        if event == "sent":
            arrived += sum(histogram.count for histogram in change.values())
            deltas.sent()
            totals.sent()
    assert arrived == recorded


def test_values_from_many_threads_are_all_there() -> None:
    ours = run()
    producers = [Producer(ours), Producer(ours)]

    def record() -> None:
        for _ in range(500):
            ours.measured.record(METRIC, 1.0, TRAINING)

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for producer in producers:
        producer.collect()
    for thread in threads:
        thread.join()
    for producer in producers:
        assert [histogram.count for histogram in histograms(producer.collect()).values()] == [4000]


@pytest.fixture
def sink(environment: pytest.MonkeyPatch) -> Any:
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.http)
        yield opened


@pytest.mark.parametrize("step_type", [None, RLStep])
def test_they_arrive_with_steps_and_without(step_type: Any, sink: OtlpSink, start: Start) -> None:
    telemetry = start(step_type)
    telemetry.capture(Report(RLStep(number=1, duration_s=1.0)), step=True)
    telemetry.measure(METRIC, 7.0, TRAINING)
    telemetry.flush(5)
    telemetry.measure(METRIC, 400.0, TRAINING)
    telemetry.close()
    telemetry.measure(METRIC, 1.0, TRAINING)
    point = sink.latest(METRIC)
    assert (point.attributes, point.unit, point.cumulative) == (TRAINING, "s", True)
    first = sink.series(METRIC)[0].histogram
    assert point.histogram is not None
    assert first is not None
    assert (first.count, point.histogram.count, point.histogram.sum) == (1, 2, 407.0)
    assert len(sink.series(names.RL_STEP_DURATION)) == (2 if step_type else 0)


def test_a_provider_that_is_handed_in_has_them_too(start: Start) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    telemetry = start(None, meter_provider=provider)
    telemetry.measure(METRIC, 7.0, TRAINING)
    telemetry.measure(METRIC, 9.0, QUEUED)
    found = histograms(reader.get_metrics_data())
    assert {series[1]: histogram.sum for series, histogram in found.items()} == {"TRAINING": 7.0, "QUEUED": 9.0}
    assert {histogram.bounds for histogram in found.values()} == {METRIC.buckets}


# -- values that keep coming


@given(st.lists(st.lists(st.floats(0, 1e6), max_size=12)), st.integers(0, 8))
@pytest.mark.parametrize("metric", [names.RL_ROLLOUT_REWARD, names.RL_ROLLOUT_COMPLETION_LENGTH], ids=lambda m: m.name)
def test_a_tally_counts_every_value_once_however_they_come(
    metric: Metric, parts: list[list[float]], looked_at: int
) -> None:
    first, second = Tally(metric, {}), Tally(metric, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "MOST_WAITING", 10)
        for number, values in enumerate(parts):
            (first if number % 2 else second).add(values)
            if number == looked_at:
                first.counted()
        first.include(second)
    values = [value for part in parts for value in part]
    expected = Exponential.of(values) if metric.exponential else Explicit.of(values, metric.buckets)
    found = first.counted()
    assert found.summary.count == len(values)
    assert found.counts == expected.counts
    assert not metric.exponential or found.scale == expected.scale
    assert (found.summary.min, found.summary.max) == (expected.summary.min, expected.summary.max)
    assert math.isclose(found.summary.total, expected.summary.total)


def test_a_tally_keeps_few_values() -> None:
    tally = Tally(names.RL_ROLLOUT_REWARD, {})
    for _ in range(10):
        tally.add([0.5] * (MOST_WAITING // 3))
        assert len(tally._waiting) <= MOST_WAITING
    assert tally.counted().summary.count == 10 * (MOST_WAITING // 3)
