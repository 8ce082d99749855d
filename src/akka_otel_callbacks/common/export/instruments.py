"""OpenTelemetry instruments made from the registry's metrics, for a meter provider that is handed in: its readers are
not ours, so they can only read instruments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)

from akka_otel_callbacks.common.recording.board import Board
from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.recording.observed import ReadPoints, attempt
from akka_otel_callbacks.common.recording.recorder import Record, Snapshot
from akka_otel_callbacks.common.recording.steps import PATIENCE_S, Steps
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes, Point
from akka_otel_callbacks.common.vocabulary.step import DISTRIBUTIONS, GAUGES

_CREATE_OBSERVABLE = {
    Kind.GAUGE: "create_observable_gauge",
    Kind.COUNTER: "create_observable_counter",
    Kind.UPDOWNCOUNTER: "create_observable_up_down_counter",
}

_sources: WeakKeyDictionary[Meter, dict[Metric, list[ReadPoints]]] = WeakKeyDictionary()
"""The sources that an observable instrument reads, by meter and metric. A meter makes one instrument for a name and
drops the callbacks of a second one, so of two trainings on one provider only the first would be seen."""


def observe(meter: Meter, metric: Metric, points: ReadPoints) -> Callable[[], None]:
    """Adds a source to the metric's observable instrument. `points` is called at every collection, on the exporter's
    thread. A series ends when `points` no longer gives it. Returns a function that takes the source away again."""
    metrics = _sources.setdefault(meter, {})
    if metric not in metrics:
        metrics[metric] = []
        _create(meter, metric, metrics[metric])
    sources = metrics[metric]
    sources.append(points)
    return lambda: sources.remove(points)


def _create(meter: Meter, metric: Metric, sources: Sequence[ReadPoints]) -> None:
    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(*point) for points in tuple(sources) for point in attempt(metric, points)]

    create = getattr(meter, _CREATE_OBSERVABLE[metric.kind])
    create(metric.name, callbacks=[callback], unit=metric.unit, description=metric.description)


class StepInstruments:
    """The instruments of a training's steps. The first callback of a collection drains the queue and takes a snapshot
    that all the others read, so that counters and gauges are of the same steps. Histograms take their values as they
    come."""

    def __init__(self, meter: Meter, steps: Steps) -> None:
        self._steps, recorder, step_type = steps, steps.recorder, steps.step_type
        self._shown = Snapshot(Board(), {})
        sources = {
            names.TELEMETRY_NONFINITE: self._drain_and_count_nonfinite,
            **{metric: self._counts(metric) for metric in recorder.counters if metric is not names.TELEMETRY_NONFINITE},
            **{source.metric: self._reads(source.metric) for source in GAUGES[step_type]},
        }
        self.ends = [observe(meter, metric, source) for metric, source in sources.items()]
        """Functions that take the series away again."""
        self._histograms = {source.metric: histogram(meter, source.metric) for source in DISTRIBUTIONS[step_type]}
        recorder.listeners.append(self._record)

    def _drain_and_count_nonfinite(self) -> Iterable[Point]:
        self._shown = self._steps.drain(PATIENCE_S)
        return self._shown.counters[names.TELEMETRY_NONFINITE]

    def _counts(self, metric: Metric) -> ReadPoints:
        return lambda: self._shown.counters.get(metric, ())

    def _reads(self, metric: Metric) -> ReadPoints:
        return lambda: self._shown.board.points(metric)

    def _record(self, record: Record) -> None:
        for metric, attributes, values in record.distributions:
            histogram = self._histograms[metric]
            for value in values:
                # The SDK drops a negative record. A negative value belongs to the bucket at or below 0; the gauges
                # keep the true mean.
                histogram.record(max(value, 0.0), attributes)


def measure(meter: Meter, metric: Metric, value: float, attributes: Attributes) -> None:
    """Records one value of a histogram that belongs to no step. A meter gives the same instrument for the same name."""
    histogram(meter, metric).record(max(value, 0.0), clean(attributes))


def histogram(meter: Meter, metric: Metric) -> Histogram:
    bounds: dict[str, Any] = {"explicit_bucket_boundaries_advisory": list(metric.buckets)} if metric.buckets else {}
    return meter.create_histogram(metric.name, unit=metric.unit, description=metric.description, **bounds)


def views() -> list[View]:
    """Fixes every histogram's aggregation, so that no default of the SDK or its environment changes it."""
    return [View(instrument_name=metric.name, aggregation=_aggregation(metric)) for metric in _histograms()]


def _histograms() -> list[Metric]:
    return [metric for metric in names.METRICS if metric.kind is Kind.HISTOGRAM]


def _aggregation(metric: Metric) -> ExplicitBucketHistogramAggregation | ExponentialBucketHistogramAggregation:
    if metric.exponential:
        return ExponentialBucketHistogramAggregation()
    return ExplicitBucketHistogramAggregation(boundaries=metric.buckets)
