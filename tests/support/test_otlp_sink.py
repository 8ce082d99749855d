"""The receivers themselves: what the SDK's own exporters send is what a test reads."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.support.otlp_sink import OtlpSink, answering, otlp_sink, refusing, silent, wait_until


def _exporters(sink: OtlpSink, transport: str) -> tuple[Any, Any]:
    if transport == "grpc":
        return GrpcMetricExporter(sink.grpc, insecure=True), GrpcSpanExporter(sink.grpc, insecure=True)
    return (
        HttpMetricExporter(sink.http + "/v1/metrics", compression=Compression.Gzip, headers={"x-key": "k"}),
        HttpSpanExporter(sink.http + "/v1/traces"),
    )


def _metrics_data() -> Any:
    reader = InMemoryMetricReader()
    view = View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())
    provider = MeterProvider([reader], Resource({"service.name": "svc"}), views=[view], shutdown_on_exit=False)
    meter = provider.get_meter("scope")
    meter.create_gauge("gauge", "By", "a gauge").set(1.5, {"term": "a", "n": 2})
    meter.create_counter("counter").add(3)
    explicit = meter.create_histogram("explicit", explicit_bucket_boundaries_advisory=[1, 10])
    exponential = meter.create_histogram("exponential")
    for value in (0.5, 2.0, 20.0):
        explicit.record(value)
        exponential.record(value)
    return reader.get_metrics_data()


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_metrics_arrive_as_they_were_recorded(transport: str) -> None:
    with otlp_sink() as sink:
        exporter, _ = _exporters(sink, transport)
        assert exporter.export(_metrics_data()) is MetricExportResult.SUCCESS
        exporter.shutdown()

    gauge = sink.latest("gauge", {"term": "a"})
    assert (gauge.value, gauge.unit, gauge.description, gauge.kind) == (1.5, "By", "a gauge", "gauge")
    assert gauge.attributes == {"term": "a", "n": 2}
    assert (gauge.resource, gauge.scope) == ({"service.name": "svc"}, "scope")
    counter = sink.latest("counter")
    assert (counter.value, counter.monotonic, counter.cumulative) == (3, True, True)
    explicit = sink.latest("explicit").histogram
    assert (explicit.count, explicit.sum, explicit.min, explicit.max) == (3, 22.5, 0.5, 20.0)
    assert (explicit.bounds, explicit.counts) == ((1, 10), (1, 1, 1))
    exponential = sink.latest("exponential").histogram
    assert (exponential.count, sum(exponential.counts), exponential.zero_count) == (3, 3, 0)
    assert [r[0] for r in sink.requests] == [transport]
    assert {p.name for p in sink.last_export()} == {"gauge", "counter", "explicit", "exponential"}


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_spans_arrive_with_their_parents(transport: str) -> None:
    with otlp_sink() as sink:
        _, exporter = _exporters(sink, transport)
        provider = TracerProvider(resource=Resource({"service.name": "svc"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        tracer = provider.get_tracer("scope")
        with tracer.start_as_current_span("root"), tracer.start_as_current_span("child", attributes={"n": 1}) as child:
            child.add_event("happened", {"why": "test"})
        provider.shutdown()

    inner, outer = sink.spans()
    assert (inner.name, outer.name, outer.parent_span_id) == ("child", "root", "")
    assert (inner.parent_span_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert (inner.attributes, inner.events) == ({"n": 1}, (("happened", {"why": "test"}),))
    assert outer.end_ns >= inner.end_ns > inner.start_ns


def test_headers_and_compression_are_seen() -> None:
    with otlp_sink() as sink:
        exporter, _ = _exporters(sink, "http")
        exporter.export(_metrics_data())
    (_, path, headers) = sink.requests[0]
    assert (path, headers["x-key"], headers["content-encoding"]) == ("/v1/metrics", "k", "gzip")


def test_a_sink_that_refuses_keeps_nothing_and_counts() -> None:
    with otlp_sink(status=503) as sink:
        exporter = GrpcMetricExporter(sink.grpc, insecure=True, timeout=1)
        assert exporter.export(_metrics_data()) is MetricExportResult.FAILURE
        exporter.shutdown()
    assert sink.refused > 0
    assert sink.metrics() == []
    with pytest.raises(AssertionError, match="no gauge"):
        sink.latest("gauge")


def test_misbehaving_endpoints() -> None:
    with answering(503) as url, pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(url + "/v1/metrics", data=b"", timeout=2)
    with refusing() as url, pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(url, timeout=2)
    with silent() as url:
        connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=2)
        connection.settimeout(0.1)
        connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.close()


def test_wait_until() -> None:
    values = iter([0, None, 7])
    assert wait_until(lambda: next(values)) == 7
    with pytest.raises(AssertionError, match="within"):
        wait_until(lambda: False, timeout_s=0.05)
