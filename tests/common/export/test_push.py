"""What is left to send arrives: in parts where it is too large, at once where the time runs out."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from itertools import groupby, pairwise

import pytest

from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.support.otlp_sink import OtlpSink, otlp_sink, replying, wait_until

Start = Callable[..., Telemetry]
STEPS = range(1, 41)
REASON = names.ATTR_TELEMETRY_REASON
TRANSPORTS = pytest.mark.parametrize("transport", ["http", "grpc"])


def use(environment: pytest.MonkeyPatch, sink: OtlpSink, transport: str) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", getattr(sink, transport))
    environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", {"http": "http/protobuf", "grpc": "grpc"}[transport])


@TRANSPORTS
@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_what_a_collector_finds_too_large_comes_in_parts(
    transport: str, temporality: str, environment: pytest.MonkeyPatch, start: Start
) -> None:
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")  # one export, at the end
    environment.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", temporality)
    with otlp_sink(largest=64 * 1024) as sink:
        use(environment, sink, transport)
        telemetry = start()
        for number in STEPS:
            telemetry.capture(Report(grpo_step(number)), step=True)
        telemetry.close()
        points = sink.series(names.RL_STEP_REWARD)
        counts = [point.value for point in sink.series(names.RL_STEP_COUNT)]
    assert len({point.export for point in points}) > 1
    assert [value for value, _ in groupby(point.value for point in points)] == [grpo_step(n).reward for n in STEPS]
    assert all(one.time_ns < other.time_ns for one, other in pairwise(points))
    assert (counts[-1] if temporality == "cumulative" else sum(counts)) == len(STEPS)


def test_a_part_of_which_something_is_rejected_is_followed_by_the_rest(
    environment: pytest.MonkeyPatch, start: Start
) -> None:
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    environment.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with otlp_sink(largest=64 * 1024) as sink:
        sink.rejected = 1, "the value is too large"
        use(environment, sink, "http")
        telemetry = start()
        for number in STEPS:
            telemetry.capture(Report(grpo_step(number)), step=True)
        telemetry.close()
        points = sink.series(names.RL_STEP_REWARD)
    assert [value for value, _ in groupby(point.value for point in points)] == [grpo_step(n).reward for n in STEPS]
    assert all(one.time_ns < other.time_ns for one, other in pairwise(points))


@TRANSPORTS
def test_a_collector_that_is_back_when_the_training_ends_gets_everything(
    transport: str, environment: pytest.MonkeyPatch, start: Start, log: pytest.LogCaptureFixture
) -> None:
    """Whatever pause before another attempt is under way."""
    with otlp_sink(status=503) as sink:
        use(environment, sink, transport)
        telemetry = start()
        for number in STEPS:
            telemetry.capture(Report(grpo_step(number)), step=True)
        wait_until(lambda: sink.refused == 3, 30)  # the next attempt would come four seconds later
        time.sleep(0.2)
        sink.status = 200
        telemetry.close()
        values = {point.value for point in sink.series(names.RL_STEP_REWARD)}
    assert values == {grpo_step(number).reward for number in STEPS}
    assert "not sent" not in log.text


def test_what_is_translated_arrives_though_the_rest_will_not_be(
    environment: pytest.MonkeyPatch, start: Start, log: pytest.LogCaptureFixture
) -> None:
    with otlp_sink() as sink:
        use(environment, sink, "http")
        telemetry = start()
        for number in STEPS:
            telemetry.capture(Report(grpo_step(number), seconds=0.0 if number <= 30 else 5.0), step=True)
        telemetry.close()
        values = {point.value for point in sink.series(names.RL_STEP_REWARD)}
    assert values == {grpo_step(number).reward for number in range(1, 31)}
    assert "are lost: 10" in log.text


# -- what a collector will never take


@TRANSPORTS
@pytest.mark.parametrize("temporality", ["cumulative", "delta"])
def test_what_a_collector_rejects_as_invalid_is_dropped_and_counted(
    transport: str, temporality: str, environment: pytest.MonkeyPatch, start: Start, log: pytest.LogCaptureFixture
) -> None:
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", temporality)
    with otlp_sink() as sink:
        use(environment, sink, transport)
        telemetry = start()
        for number, status in enumerate((200, 400, 400, 200), 1):
            sink.status = status
            telemetry.capture(Report(grpo_step(number)), step=True)
            assert telemetry.flush(10)
        telemetry.close()
        rewards = [value for value, _ in groupby(point.value for point in sink.series(names.RL_STEP_REWARD))]
        counts = [point.value for point in sink.series(names.RL_STEP_COUNT)]
        dropped = [point.value for point in sink.series(names.TELEMETRY_DROPPED, {REASON: "rejected"})]
    assert rewards == [grpo_step(number).reward for number in (1, 4)]
    assert (counts[-1] if temporality == "cumulative" else sum(counts)) == (4 if temporality == "cumulative" else 2)
    assert (dropped[-1] if temporality == "cumulative" else sum(dropped)) == 2
    (warning, missing) = [record.getMessage() for record in log.records if "reject" in record.getMessage()]
    said = {"http": "400 Bad Request", "grpc": "INVALID_ARGUMENT: refused by the test"}[transport]
    assert "rejects the telemetry, which is dropped" in warning
    assert said in warning
    assert missing.startswith("2 steps were rejected by otlp")


def test_what_a_collector_finds_too_large_is_no_less_divided_where_it_says_so_with_400(
    environment: pytest.MonkeyPatch, start: Start, log: pytest.LogCaptureFixture
) -> None:
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    environment.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    sizes: list[int] = []

    def refuse_large(request: BaseHTTPRequestHandler) -> None:
        sizes.append(int(request.headers["content-length"]))
        body = b"message is larger than 64 KiB" if sizes[-1] > 64 * 1024 else b""
        request.send_response(400 if body else 200)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with replying(refuse_large) as url:
        environment.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", url)
        telemetry = start()
        for number in STEPS:
            telemetry.capture(Report(grpo_step(number)), step=True)
        telemetry.close()
    assert sizes[0] > 64 * 1024 >= sizes[-1]
    assert "reject" not in log.text
