"""Embedded files for tests, written by the SDK and the package's own file exporter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.export.files import MetricFile
from akka_otel_callbacks.common.vocabulary import names


class Session:
    """One process that records and exports when told to."""

    def __init__(self, path: Path, resource: Mapping[str, Any]) -> None:
        views = [View(instrument_name="*exponential*", aggregation=ExponentialBucketHistogramAggregation())]
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], Resource(resource), views=views, shutdown_on_exit=False)
        self._file = MetricFile(path)
        self.meter: Meter = self._provider.get_meter("test")

    def export(self) -> None:
        self._file.export(self._reader.get_metrics_data() or MetricsData([]))

    def close(self) -> None:
        self._provider.shutdown()
        self._file.shutdown()


@contextmanager
def session(path: Path, run_id: str = "run-1", **resource: Any) -> Iterator[Session]:
    opened = Session(path, {names.ATTR_RUN_ID.name: run_id, **resource})
    try:
        yield opened
    finally:
        opened.close()
