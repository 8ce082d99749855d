"""A Prometheus endpoint, and the figures that a scrape reads."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics.export import MetricReader, MetricsData

from akka_otel_callbacks.common.export.producer import Producer, Run

PATIENCE_S = 0.1
"""A scrape shows the latest step that is translated. It does not wait for a backlog: Prometheus gives up after 10 s."""


def serve(reader: MetricReader, run: Run) -> None:
    """Has a pulled reader give out the run's latest figures.

    A reader is registered with this callback, which a meter provider would set; there is none here. Prometheus's
    format has no exponential histograms, and the SDK's exporter fails where one exists.
    """
    producer = Producer(run, every_step=False, exponential=False, patience_s=PATIENCE_S)

    def collect(*_: Any, **__: Any) -> MetricsData | None:
        return producer.collect()

    reader._set_collect_callback(collect)  # type: ignore[arg-type]  # its signature differs between versions
