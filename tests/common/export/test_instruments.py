"""Instruments as a collector sees them: named, described and bucketed by the registry, whatever the SDK's defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from akka_otel_callbacks.common.export.instruments import StepInstruments, observe, views
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from akka_otel_callbacks.common.vocabulary.step import DISTRIBUTIONS
from tests.support.points import Point, points_of

DISTRIBUTED = [source for sources in DISTRIBUTIONS.values() for source in sources]
HISTOGRAMS = [metric for metric in names.METRICS if metric.kind is Kind.HISTOGRAM]
OBSERVABLE = [metric for metric in names.METRICS if metric.kind is not Kind.HISTOGRAM]


class Provider(MeterProvider):
    """A provider whose points a test reads as a collector would."""

    def __init__(self, *, use_views: bool = True, reader: Any = None) -> None:
        self.reader = reader or InMemoryMetricReader()
        chosen = views() if use_views else []
        super().__init__([self.reader], views=chosen, shutdown_on_exit=False)
        self.meter = self.get_meter("test")

    def points(self) -> list[Point]:
        data = self.reader.get_metrics_data()
        return [] if data is None else list(points_of(encode_metrics(data).resource_metrics))

    def values(self, metric: Metric) -> list[float]:
        return [point.value for point in self.points() if point.name == metric.name]


KINDS = {Kind.GAUGE: ("gauge", False), Kind.COUNTER: ("sum", True), Kind.UPDOWNCOUNTER: ("sum", False)}


@pytest.mark.parametrize("metric", OBSERVABLE, ids=lambda metric: metric.name)
def test_an_observed_metric_is_what_the_registry_says(metric: Metric) -> None:
    provider = Provider()
    observe(provider.meter, metric, lambda: [(3, {"a": "b"})])
    (point,) = provider.points()
    assert (point.name, point.unit, point.description) == (metric.name, metric.unit, metric.description)
    assert (point.value, point.attributes) == (3, {"a": "b"})
    assert (point.kind, point.monotonic) == KINDS[metric.kind]


def test_a_series_ends_with_its_point() -> None:
    provider, current = Provider(), [(1.0, {"rank": 0}), (2.0, {"rank": 1})]
    observe(provider.meter, names.JOB_PLACEMENT, lambda: tuple(current))
    assert provider.values(names.JOB_PLACEMENT) == [1.0, 2.0]
    current.pop(0)
    assert provider.values(names.JOB_PLACEMENT) == [2.0]
    current.clear()
    assert provider.points() == []


def test_sources_of_one_metric_are_shown_together_until_they_are_taken_away() -> None:
    provider = Provider()
    ends = [observe(provider.meter, names.HW_POWER, lambda n=n: [(float(n), {"hw.id": n})]) for n in range(3)]
    assert provider.values(names.HW_POWER) == [0.0, 1.0, 2.0]
    ends[1]()
    assert provider.values(names.HW_POWER) == [0.0, 2.0]
    ends[0](), ends[2]()
    assert provider.values(names.HW_POWER) == []
    observe(provider.meter, names.HW_POWER, lambda: [(7.0, {})])
    assert provider.values(names.HW_POWER) == [7.0]


def test_meters_do_not_share_sources() -> None:
    one, other = Provider(), Provider()
    observe(one.meter, names.HW_POWER, lambda: [(1.0, {})])
    observe(other.meter, names.HW_POWER, lambda: [(2.0, {})])
    assert (one.values(names.HW_POWER), other.values(names.HW_POWER)) == ([1.0], [2.0])


def test_a_source_that_raises_is_reported_once_and_hides_no_other(
    failures: Counter, log: pytest.LogCaptureFixture
) -> None:
    def broken() -> Iterable[Any]:
        yield 1.0, {}
        raise OSError("the sensor is gone")

    provider = Provider()
    observe(provider.meter, names.HW_POWER, broken)
    observe(provider.meter, names.HW_POWER, lambda: [(5.0, {})])
    observe(provider.meter, names.HW_TEMPERATURE, lambda: [(60.0, {})])
    for _ in range(3):
        assert provider.values(names.HW_POWER) == [5.0]
        assert provider.values(names.HW_TEMPERATURE) == [60.0]
    assert failures == {(f"the callback of {names.HW_POWER.name}", "OSError"): 6}
    assert len(log.records) == 1
    assert "the sensor is gone" in log.text


# -- histograms


def recorded(provider: Provider, metric: Metric, *numbers: float) -> Point:
    """What arrives of an amendment that has these values."""
    step_type, source = next((kind, s) for kind, found in DISTRIBUTIONS.items() for s in found if s.metric is metric)
    steps = Steps(step_type)
    StepInstruments(provider.meter, steps)
    steps.recorder.record(step_type(**{source.attribute: {"b": numbers} if source.by else numbers}))
    (point,) = (point for point in provider.points() if point.histogram)
    assert (point.name, point.unit, point.description) == (metric.name, metric.unit, metric.description)
    assert point.attributes == ({source.by.name: "b"} if source.by else {})
    assert point.histogram.count == len(numbers)
    assert point.histogram.sum == pytest.approx(sum(numbers))
    return point


@pytest.mark.parametrize("metric", [source.metric for source in DISTRIBUTED], ids=lambda metric: metric.name)
@pytest.mark.parametrize("preference", ["", "base2_exponential_bucket_histogram", "explicit_bucket_histogram"])
def test_buckets_are_the_registry_s_whatever_the_environment_prefers(
    metric: Metric, preference: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", preference)
    exporter = OTLPMetricExporter()
    reader = InMemoryMetricReader(preferred_aggregation=exporter._preferred_aggregation)
    point = recorded(Provider(reader=reader), metric, 0.25, 3.0)
    assert point.kind == ("exponential_histogram" if metric.exponential else "histogram")
    assert point.histogram.bounds == metric.buckets


def test_the_environment_variable_of_that_test_has_an_effect(environment: pytest.MonkeyPatch) -> None:
    """On a histogram that is not ours: else the test above would prove nothing."""
    variable = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
    environment.setenv(variable, "base2_exponential_bucket_histogram")
    reader = InMemoryMetricReader(preferred_aggregation=OTLPMetricExporter()._preferred_aggregation)
    provider = Provider(reader=reader)
    provider.meter.create_histogram("theirs").record(1.0)
    assert [point.kind for point in provider.points()] == ["exponential_histogram"]


def test_a_provider_that_is_not_ours_gets_the_explicit_buckets_as_advice() -> None:
    point = recorded(Provider(use_views=False), names.RL_ROLLOUT_REWARD, 0.0, 0.05, 0.95, 7.0)
    assert point.histogram.bounds == names.RL_ROLLOUT_REWARD.buckets
    assert point.histogram.counts == (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1)


def test_the_reward_s_buckets_are_the_specification_s() -> None:
    assert names.RL_ROLLOUT_REWARD.buckets == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1, 2, 5)


def test_every_histogram_has_a_view_and_nothing_else_has() -> None:
    assert sorted(view._instrument_name for view in views()) == sorted(m.name for m in HISTOGRAMS)
