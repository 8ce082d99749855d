"""What is left to send arrives: in parts where it is too large, at once where the time runs out."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import groupby, pairwise

import pytest

from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until

Start = Callable[..., Telemetry]
STEPS = range(1, 41)
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
