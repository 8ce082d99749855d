"""What the SDK hands an exporter: one small batch of each signal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider


@cache
def metrics_batch() -> MetricsData:
    reader = InMemoryMetricReader()
    MeterProvider([reader], shutdown_on_exit=False).get_meter("test").create_counter("steps").add(1)
    data = reader.get_metrics_data()
    assert data is not None
    return data


@cache
def spans_batch() -> Sequence[ReadableSpan]:
    span = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("job")
    span.end()
    return (span,)  # type: ignore[return-value]
