"""What a person reads of an endpoint that goes away and comes back, against a real collector on both transports."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from akka_otel_callbacks.common.delivery import watched
from tests.support.otlp_sink import OtlpSink, otlp_sink


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


@pytest.fixture(scope="module")
def batches() -> dict[str, Any]:
    reader = InMemoryMetricReader()
    MeterProvider([reader], shutdown_on_exit=False).get_meter("test").create_counter("steps").add(1)
    span = TracerProvider(shutdown_on_exit=False).get_tracer("test").start_span("job")
    span.end()
    return {"metrics": reader.get_metrics_data(), "spans": [span]}


def exporter(sink: OtlpSink, transport: str, signal: str) -> Any:
    """The SDK's, with a time that leaves room for a busy machine and for two attempts."""
    if transport == "grpc":
        return {"metrics": GrpcMetricExporter, "spans": GrpcSpanExporter}[signal](sink.grpc, insecure=True, timeout=2.5)
    path = {"metrics": "/v1/metrics", "spans": "/v1/traces"}[signal]
    return {"metrics": HttpMetricExporter, "spans": HttpSpanExporter}[signal](sink.http + path, timeout=2.5)


REFUSED = {"http": 400, "grpc": 503}
"""Not worth a second attempt over HTTP; gRPC's receiver knows one refusal only."""


@pytest.mark.parametrize("signal", ["metrics", "spans"])
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_one_warning_when_it_goes_and_one_line_when_it_is_back(
    transport: str, signal: str, sink: OtlpSink, batches: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    watching = watched(exporter(sink, transport, signal), "the collector")
    for status in (200, REFUSED[transport], REFUSED[transport], 200, 200, REFUSED[transport]):
        sink.status = status
        assert (watching.export(batches[signal]).name == "SUCCESS") == (status == 200)
    sink.status = 200
    watching.shutdown()

    said = [(record.levelname, record.getMessage()) for record in log.records]
    assert [level for level, _ in said] == ["WARNING", "INFO", "WARNING"], said
    assert all(message.startswith("the collector ") for _, message in said)


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_the_warning_names_the_cause_of_each_signal(
    transport: str, sink: OtlpSink, batches: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    sink.status = 503
    for signal in ("metrics", "spans"):
        watching = watched(exporter(sink, transport, signal), "the collector")
        watching.export(batches[signal])
        watching.shutdown()
    sink.status = 200
    assert [record.levelname for record in log.records] == ["WARNING"] * 2
    for record in log.records:
        assert "unavailable" in record.getMessage().lower()


def test_a_program_s_own_exporters_log_as_ever(
    sink: OtlpSink, batches: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    watched(exporter(sink, "http", "metrics"), "the collector").shutdown()
    own = exporter(sink, "http", "metrics")
    sink.status = 503
    own.export(batches["metrics"])
    sink.status = 200
    assert {record.name for record in log.records} == {HttpMetricExporter.__module__}
    assert all(record.levelno >= logging.WARNING for record in log.records)


def test_an_exporter_that_raises_is_left_to_the_sdk(log: pytest.LogCaptureFixture) -> None:
    class Raising:
        def export(self, batch: Any) -> None:
            raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        watched(Raising(), "the collector").export([])
    logging.getLogger(Raising.__module__).warning("still heard")
    assert "still heard" in log.text
