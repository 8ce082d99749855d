"""OpenTelemetry instruments made from the registry's metrics."""

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

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.board import Attributes, Point
from akka_otel_callbacks.common.guard import report
from akka_otel_callbacks.common.metric import Kind, Metric

Points = Callable[[], Iterable[Point]]

PowersOfTwo = tuple(float(2**exponent) for exponent in range(21))
"""Buckets of a histogram that should be exponential, for the Prometheus exporter: it fails on an exponential one and
takes every other series of the process with it."""

_CREATE_OBSERVABLE = {
    Kind.GAUGE: "create_observable_gauge",
    Kind.COUNTER: "create_observable_counter",
    Kind.UPDOWNCOUNTER: "create_observable_up_down_counter",
}

_sources: WeakKeyDictionary[Meter, dict[Metric, list[Points]]] = WeakKeyDictionary()
"""By meter and metric, what an observable instrument reads. A meter makes one instrument of a name and drops the
callbacks of a second, so that of two trainings on one provider only the first would be seen."""


def observe(meter: Meter, metric: Metric, points: Points) -> Callable[[], None]:
    """Adds a source to the metric's observable instrument. `points` is called at every collection, on the exporter's
    thread; a series ends when it no longer gives its point. Returns what takes the source away again."""
    metrics = _sources.setdefault(meter, {})
    if metric not in metrics:
        metrics[metric] = []
        _create(meter, metric, metrics[metric])
    sources = metrics[metric]
    sources.append(points)
    return lambda: sources.remove(points)


def _create(meter: Meter, metric: Metric, sources: Sequence[Points]) -> None:
    def callback(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(*point) for points in tuple(sources) for point in _attempt(metric, points)]

    create = getattr(meter, _CREATE_OBSERVABLE[metric.kind])
    create(metric.name, callbacks=[callback], unit=metric.unit, description=metric.description)


def _attempt(metric: Metric, points: Points) -> Sequence[Point]:
    try:
        return tuple(points())
    except Exception as error:  # noqa: BLE001 - the SDK would log it with a traceback at every collection
        report(f"the callback of {metric.name}", error)
        return ()


class Histograms:
    """Synchronous histograms, by metric."""

    def __init__(self, meter: Meter, metrics: Iterable[Metric]) -> None:
        self._instruments: dict[Metric, Histogram] = {metric: _histogram(meter, metric) for metric in metrics}

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        self._instruments[metric].record(value, attributes)


def _histogram(meter: Meter, metric: Metric) -> Histogram:
    bounds: dict[str, Any] = {"explicit_bucket_boundaries_advisory": list(metric.buckets)} if metric.buckets else {}
    return meter.create_histogram(metric.name, unit=metric.unit, description=metric.description, **bounds)


def views(*, exponential: bool) -> list[View]:
    """Fixes every histogram's aggregation, so that no default of the SDK or its environment changes it.

    Args:
        exponential: whether the exporters can carry exponential histograms.
    """
    return [
        View(instrument_name=metric.name, aggregation=_aggregation(metric, exponential)) for metric in _histograms()
    ]


def _histograms() -> list[Metric]:
    return [metric for metric in names.JOB_METRICS if metric.kind is Kind.HISTOGRAM]


def _aggregation(
    metric: Metric, exponential: bool
) -> ExplicitBucketHistogramAggregation | ExponentialBucketHistogramAggregation:
    if not metric.exponential:
        return ExplicitBucketHistogramAggregation(boundaries=metric.buckets)
    if exponential:
        return ExponentialBucketHistogramAggregation()
    return ExplicitBucketHistogramAggregation(boundaries=PowersOfTwo)
