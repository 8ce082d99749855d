"""What is sent is compressed, and plain to a collector that cannot unpack it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics, OtlpSpans
from akka_otel_callbacks.common.export.selection import select
from tests.support.batches import metrics_batch, spans_batch
from tests.support.otlp_sink import OtlpSink, otlp_sink

COMPRESSION = "OTEL_EXPORTER_OTLP_COMPRESSION"
TRANSPORTS = ("http/protobuf", "grpc")


class Exports:
    """Both signals, as a training sends them."""

    def __init__(self, sink: OtlpSink, protocol: str, variables: dict[str, str]) -> None:
        url = sink.grpc if protocol == "grpc" else sink.http
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **variables}
        selection = select(environ, "run")
        self.metrics, self.spans = OtlpMetrics(selection.metrics[0]), OtlpSpans(selection.traces[0])

    def both(self) -> list[str]:
        return [self.metrics.export(metrics_batch()).name, self.spans.export(spans_batch()).name]


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


def encodings(sink: OtlpSink) -> list[str]:
    return [headers.get("content-encoding", "") for _, _, headers in sink.requests]


@pytest.mark.parametrize(
    ("variables", "encoding"),
    [
        ({}, "gzip"),
        ({COMPRESSION: ""}, "gzip"),
        ({COMPRESSION: "gzip"}, "gzip"),
        ({COMPRESSION: "deflate"}, "deflate"),
        ({COMPRESSION: "none"}, ""),
    ],
)
def test_gzip_unless_the_environment_says_otherwise(variables: dict[str, str], encoding: str, sink: OtlpSink) -> None:
    sink.requests.clear()
    exports = Exports(sink, "http/protobuf", variables)
    assert exports.both() == exports.both() == ["SUCCESS"] * 2
    assert encodings(sink) == [encoding] * 4


@pytest.mark.parametrize(
    ("protocol", "status"), [("http/protobuf", 400), ("http/protobuf", 415), ("http/protobuf", 500), ("grpc", 1)]
)
def test_a_collector_that_cannot_unpack_gets_it_plain(
    protocol: str, status: int, log: pytest.LogCaptureFixture
) -> None:
    with otlp_sink(cannot_unpack=status) as collector:
        exports = Exports(collector, protocol, {})
        for _ in range(3):
            assert exports.both() == ["SUCCESS"] * 2
    assert len(collector.requests) == 6
    assert encodings(collector) == [""] * 6
    assert collector.refused == (2 if protocol != "grpc" else 0), "each signal asks once; gRPC's core refuses itself"
    assert [record.levelno for record in log.records] == [logging.INFO] * 2
    assert "does not take gzip" in log.text


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_a_collector_that_has_unpacked_once_is_not_asked_again(protocol: str, sink: OtlpSink) -> None:
    """What it refuses later it refuses for another reason."""
    sink.requests.clear()
    exports = Exports(sink, protocol, {})
    assert exports.both() == ["SUCCESS"] * 2
    refused = sink.refused
    sink.status = 400
    try:
        assert exports.metrics.export(metrics_batch()).name == "FAILURE"
    finally:
        sink.status = 200
    assert sink.refused == refused + 1
    assert exports.both() == ["SUCCESS"] * 2
    assert set(encodings(sink)) == ({"gzip"} if protocol != "grpc" else {""}), "gRPC tells its servers nothing of it"


def test_a_collector_that_refuses_everything_is_asked_compressed_again(sink: OtlpSink) -> None:
    sink.requests.clear()
    exports = Exports(sink, "http/protobuf", {})
    sink.status = 400
    try:
        assert exports.both() == ["FAILURE"] * 2
    finally:
        sink.status = 200
    assert exports.both() == ["SUCCESS"] * 2
    assert encodings(sink) == ["gzip"] * 2


def test_what_is_sent_is_a_fraction_of_it(sink: OtlpSink) -> None:
    sink.requests.clear()
    for compression in ("none", "gzip"):
        Exports(sink, "http/protobuf", {COMPRESSION: compression}).both()
    plain, _, packed, _ = (int(headers["content-length"]) for _, _, headers in sink.requests)
    assert packed < plain
