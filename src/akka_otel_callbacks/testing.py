"""Telemetry in memory, for the tests of a program that trains.

    with telemetry_in_memory() as telemetry:
        callback = AkkaTelemetryCallback(meter_provider=telemetry.meter_provider)
        GRPOTrainer(..., callbacks=[callback]).train()

    assert telemetry.latest("rl.step.reward") > 0.5
    assert telemetry.latest("rl.step.reward.term", {"rl.term": "accuracy"}) > 0.5
    assert telemetry.latest("rl.step.count") == 10

GPUs that are not there: `AkkaTelemetryCallback(gpus=fake_gpus(FakeNvml(FakeGpu(power_mw=300_000))))`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    MetricReader,
    MetricsData,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from akka_otel_callbacks.common.export.instruments import views
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.tracing.provider import unwatched
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric

__all__ = ["FakeGpu", "FakeNvml", "TelemetryInMemory", "fake_gpus", "telemetry_in_memory"]

PUBLISHED = {each.name for each in vars(names).values() if isinstance(each, Metric | Attribute)}
DataPoint: TypeAlias = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint
Histogram: TypeAlias = HistogramDataPoint | ExponentialHistogramDataPoint


class TelemetryInMemory:
    """What has been exported so far: the newest value of each series. A training exports when it ends. Within the
    `with` block, every call that reads a value exports first.

    Attributes:
        meter_provider: for `meter_provider=`.
        tracer_provider: for `tracer_provider=`.
    """

    def __init__(self) -> None:
        self._reader = _Reader()
        self._spans = InMemorySpanExporter()
        self.meter_provider = MeterProvider([self._reader], views=views(), shutdown_on_exit=False)
        self.tracer_provider = unwatched(TracerProvider, shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(unwatched(SimpleSpanProcessor, self._spans))

    def latest(self, metric: str, attributes: Mapping[str, Any] | None = None) -> float:
        """The newest value of a gauge or counter.

        Args:
            metric: the name, with or without the prefix that the reference leaves out.
            attributes: attributes of the series, also with or without the prefix; as many as tell it from the metric's
                other series.

        Raises:
            LookupError: no series has these attributes, or several have. The message lists the series that there are.
            TypeError: the metric is a histogram.
        """
        point = self._point(metric, attributes or {})
        if not isinstance(point, NumberDataPoint):
            raise TypeError(f"{metric} is a histogram: use histogram()")
        return point.value

    def histogram(self, metric: str, attributes: Mapping[str, Any] | None = None) -> Histogram:
        """The newest state of a histogram, as the SDK's data point with `count`, `sum`, `min`, `max` and buckets.

        Args:
            metric: the same as for `latest`.
            attributes: the same as for `latest`.

        Raises:
            LookupError: the same as for `latest`.
            TypeError: the metric is no histogram.
        """
        point = self._point(metric, attributes or {})
        if isinstance(point, NumberDataPoint):
            raise TypeError(f"{metric} is no histogram: use latest()")
        return point

    def names(self) -> set[str]:
        """The metrics that were exported so far."""
        self._reader.look()
        return {name for name, _ in self._reader.points}

    def spans(self) -> tuple[ReadableSpan, ...]:
        """The finished spans, in the order of their ends."""
        return self._spans.get_finished_spans()

    def _point(self, metric: str, attributes: Mapping[str, Any]) -> DataPoint:
        self._reader.look()
        asked = {_full(name): value for name, value in attributes.items()}
        series = [point for (name, _), point in self._reader.points.items() if name == _full(metric)]
        found = [point for point in series if asked.items() <= dict(point.attributes or {}).items()]
        if len(found) == 1:
            return found[0]
        there = [dict(point.attributes or {}) for point in series] or sorted(self.names())
        raise LookupError(f"{len(found) or 'no'} series of {metric} with {dict(attributes)}; there are {there}")


def _full(name: str) -> str:
    """A name as it is published. OpenTelemetry's own, such as `hw.id`, have no prefix to leave out."""
    return name if name in PUBLISHED else names.PREFIX + name


class _Reader(MetricReader):
    """Keeps the newest point of each series, also of one that has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[tuple[str, frozenset[tuple[str, Any]]], DataPoint] = {}
        self._open = True

    def look(self) -> None:
        if self._open:
            self.collect()

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._open = False

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        self.points[metric.name, frozenset((point.attributes or {}).items())] = point


@contextmanager
def telemetry_in_memory() -> Iterator[TelemetryInMemory]:
    """Providers that keep what they get. After the block it stays readable, and nothing is added."""
    telemetry = TelemetryInMemory()
    try:
        yield telemetry
        telemetry.names()
    finally:
        telemetry.meter_provider.shutdown()
        telemetry.tracer_provider.shutdown()


def fake_gpus(nvml: FakeNvml, interval_s: float = 0.05) -> GpuHealth:
    """Scripted GPUs for `AkkaTelemetryCallback(gpus=…)`. Change their attributes, or report a fault with `nvml.xid`,
    while the training runs; `stop()` them at the end.

    Args:
        nvml: the GPUs, and which of them the process holds.
        interval_s: seconds between two samples.
    """
    return GpuHealth(nvml.device_ids, backend=nvml, interval_s=interval_s)
