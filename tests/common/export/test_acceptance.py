"""What a person reads of a collector that goes away, comes back, redirects, or takes only a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from akka_otel_callbacks.common.export import acceptance
from akka_otel_callbacks.common.export.acceptance import Acceptance, Reply
from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics, OtlpSpans
from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.reports import Report
from tests.support.batches import metrics_batch, spans_batch
from tests.support.otlp_sink import OtlpSink, otlp_sink, refusing, replying, silent

TRANSPORTS = ("http/protobuf", "grpc")


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _healthy(sink: OtlpSink) -> Iterator[None]:
    acceptance._by_address.clear()
    yield
    sink.status, sink.rejected = 200, None


class Exports:
    """Both signals to one endpoint, as a training sends them."""

    def __init__(self, url: str, protocol: str = "http/protobuf", **variables: str) -> None:
        environ = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5",
            **{f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()},
        }
        selection = select(environ, "run")
        assert selection.warnings == ()
        self._metrics, self._spans = OtlpMetrics(selection.metrics[0]), OtlpSpans(selection.traces[0])

    def metrics(self) -> bool:
        return self._metrics.export(metrics_batch()).name == "SUCCESS"

    def spans(self) -> bool:
        return self._spans.export(spans_batch()).name == "SUCCESS"

    def close(self) -> None:
        self._metrics.shutdown()
        self._spans.shutdown()


@pytest.fixture
def exports() -> Iterator[Callable[..., Exports]]:
    opened: list[Exports] = []

    def make(*args: Any, **variables: str) -> Exports:
        opened.append(Exports(*args, **variables))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def url_of(sink: OtlpSink, protocol: str) -> str:
    return sink.grpc if protocol == "grpc" else sink.http


def sink_endpoint(sink: OtlpSink, protocol: str) -> str:
    return sink.grpc if protocol == "grpc" else f"{sink.http}/v1/metrics"


def said(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in log.records]


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_an_outage_is_one_line_for_both_signals_and_one_when_it_is_over(
    protocol: str, sink: OtlpSink, exports: Callable[..., Exports], log: pytest.LogCaptureFixture
) -> None:
    both = exports(url_of(sink, protocol), protocol)
    for status in (200, 503, 503, 200, 200):
        sink.status = status
        assert both.metrics() == both.spans() == (status == 200)
    lines = said(log)
    assert [level for level, _ in lines] == ["WARNING", "INFO"], lines
    assert all(message.startswith(f"otlp {protocol} http://127.0.0.1") for _, message in lines)
    assert "unavailable" in lines[0][1].lower()


@pytest.mark.parametrize("protocol", TRANSPORTS)
@pytest.mark.parametrize("away", [refusing, silent])
def test_a_collector_that_is_away_is_one_line(
    protocol: str, away: Any, exports: Callable[..., Exports], log: pytest.LogCaptureFixture
) -> None:
    with away() as url:
        both = exports(url, protocol)
        assert not any([both.metrics(), both.spans(), both.metrics()])
    ((level, message),) = said(log)
    assert level == "WARNING"
    assert len(message) < 300


def test_trouble_of_another_kind_is_a_line_of_its_own(log: pytest.LogCaptureFixture) -> None:
    acceptance = Acceptance()
    for exporter, kind in (("m", "404"), ("t", "401"), ("m", "404"), ("t", "401"), ("m", "401")):
        acceptance.tell(exporter, "the collector", Reply(False, f"{kind} no", kind=kind))
    assert [message.rpartition(": ")[2] for _, message in said(log)] == ["404 no", "401 no"]


def test_an_exporter_that_is_closed_is_no_longer_away(log: pytest.LogCaptureFixture) -> None:
    """A second training in the process, while the collector is still away, is told so too."""
    acceptance = Acceptance()
    for training in ("first", "second"):
        acceptance.tell(training, "the collector", Reply(False, "refused", kind="connection", retryable=True))
        acceptance.forget(training)
    acceptance.tell("third", "the collector", Reply(True))
    assert [level for level, _ in said(log)] == ["WARNING"] * 2


def test_one_signal_that_is_taken_does_not_hide_that_the_other_is_not(log: pytest.LogCaptureFixture) -> None:
    acceptance = Acceptance()
    for _ in range(5):
        acceptance.tell("metrics", "the collector", Reply(True))
        acceptance.tell("spans", "the collector", Reply(False, "404 Not Found", kind="404"))
    assert [level for level, _ in said(log)] == ["WARNING"]
    acceptance.tell("spans", "the collector", Reply(True))
    assert [level for level, _ in said(log)] == ["WARNING", "INFO"]


@pytest.mark.parametrize("protocol", TRANSPORTS)
@pytest.mark.parametrize("count", [1, 7])
def test_what_a_collector_rejects_is_not_delivered(
    protocol: str, count: int, sink: OtlpSink, exports: Callable[..., Exports], log: pytest.LogCaptureFixture
) -> None:
    sink.rejected = (count, "the quota\x1b[31m is used up\n")
    both = exports(url_of(sink, protocol), protocol)
    assert not any([both.metrics(), both.spans(), both.metrics()])
    ((level, message),) = said(log)
    assert level == "WARNING"
    assert message.endswith(f"rejected {count} of the points, spans or log records: the quota is used up")


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_what_it_rejects_of_an_export_is_told_and_not_sent_again(
    protocol: str, sink: OtlpSink, start: Callable[..., Telemetry], log: pytest.LogCaptureFixture
) -> None:
    """As OTLP has it: a point that is refused today is refused tomorrow."""
    sink.rejected = (1, "a point is too old")
    telemetry = start(
        environ={
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": sink_endpoint(sink, protocol),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }
    )
    before = len(sink.metrics())
    for number in (1, 2):
        telemetry.capture(Report(RLStep(number=number, reward=float(number))), step=True)
        assert telemetry.flush(10)
    telemetry.close()
    rewards = [point.value for point in sink.series(names.RL_STEP_REWARD) if point in sink.metrics()[before:]]
    assert rewards.count(1.0) <= 2, "the step's own point, and what held when it was sent"
    warning, *_ = [message for level, message in said(log) if level == "WARNING"]
    assert warning.endswith("rejected 1 of the points, spans or log records: a point is too old")


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_what_a_collector_says_of_what_it_took_is_passed_on_once(
    protocol: str, sink: OtlpSink, exports: Callable[..., Exports], log: pytest.LogCaptureFixture
) -> None:
    sink.rejected = (0, "use the new endpoint")
    both = exports(url_of(sink, protocol), protocol)
    assert all([both.metrics(), both.metrics(), both.spans()])
    ((_, message),) = said(log)
    assert message.endswith("accepts the telemetry, and says: use the new endpoint")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_named_and_not_followed(
    status: int, sink: OtlpSink, exports: Callable[..., Exports], log: pytest.LogCaptureFixture
) -> None:
    location = f"{sink.http}/v1/metrics?token=s3cret-token"
    before = len(sink.requests)

    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("location", location)
        request.send_header("content-length", "0")
        request.end_headers()

    with replying(redirect) as url:
        both = exports(url, HEADERS="x-api-key=s3cret-key")
        assert not both.metrics()
        assert not both.spans()
    assert len(sink.requests) == before, "a header with a token would have gone to another host"
    ((_, message),) = said(log)
    assert f"{status} " in message
    assert f"{sink.http}/v1/metrics?token=***" in message
    assert "s3cret" not in log.text
