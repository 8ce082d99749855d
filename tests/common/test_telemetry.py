"""The whole core, from the capture on the training thread to a collector over HTTP and gRPC."""

from __future__ import annotations

import gc
import logging
import os
import random
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace as otel_trace
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

import akka_otel_callbacks
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.translator import MOST_CAPTURES, MOST_VALUES, StepFailed
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.scope import SCOPE
from akka_otel_callbacks.common.vocabulary.step import DISTRIBUTIONS, GAUGES, RLStep, SFTStep
from tests.common.reports import Broken, Report, grpo_step, values
from tests.support.otlp_sink import OtlpSink, otlp_sink, refusing, wait_until
from tests.support.points import Point, newest, points_of

Start = Callable[..., Telemetry]
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"


@pytest.fixture(params=["http", "grpc"])
def sink(request: pytest.FixtureRequest, environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    """A collector, which the environment names."""
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", getattr(opened, request.param))
        environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", {"http": "http/protobuf", "grpc": "grpc"}[request.param])
        yield opened


class Given:
    """Providers that a program hands in, and what they hold."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.spans = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(BatchSpanProcessor(self.spans))

    def points(self) -> list[Point]:
        data = self.reader.get_metrics_data()
        return [] if data is None else list(points_of(encode_metrics(data).resource_metrics))


@pytest.fixture
def given() -> Given:
    return Given()


def report(telemetry: Telemetry, *steps: RLStep | SFTStep) -> None:
    for step in steps:
        telemetry.capture(Report(step), step=True)


# -- what arrives


def test_everything_that_a_step_holds_arrives_as_it_was_reported(sink: OtlpSink, start: Start) -> None:
    step = grpo_step(1)
    telemetry = start(run_id="run-7")
    report(telemetry, step)
    telemetry.close()

    last = sink.last_export()
    for source in GAUGES[RLStep]:
        reported = getattr(step, source.attribute)
        assert values(last, source.metric) == (reported if source.by else {None: reported}), source.attribute
    assert values(last, names.RL_STEP_COUNT) == {None: 1}
    assert set(values(last, names.TELEMETRY_NONFINITE).values()) == {0}
    assert values(last, names.TELEMETRY_DROPPED) == {"overflow": 0, "failed": 0, "thinned": 0, "rejected": 0}
    for source in DISTRIBUTIONS[RLStep]:
        reported = getattr(step, source.attribute)
        for label, numbers in reported.items() if source.by else [(None, reported)]:
            numbers = numbers if isinstance(numbers, list) else [numbers]
            histogram = sink.latest(source.metric, {source.by: label} if source.by else {}).histogram
            assert histogram.count == len(numbers)
            assert histogram.sum == pytest.approx(sum(numbers))
            assert (histogram.min, histogram.max) == (min(numbers), max(numbers))
    assert {point.scope for point in last} == {SCOPE}
    for point in last:
        assert point.resource[names.ATTR_RUN_ID.name] == "run-7"
        assert point.resource[names.ATTR_RUN_ATTEMPT.name] == 1
        assert point.cumulative == (point.kind != "gauge")
    assert [span.name for span in sink.spans()] == [names.SPAN_JOB.name]
    assert sink.spans()[0].resource == dict(last[0].resource)


def test_the_completion_lengths_are_exponential_and_the_rewards_have_their_bounds(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    report(telemetry, RLStep(number=1, rollout_completion_length=[0, 1, 100], rollout_reward={"total": [-2.0, 0.95]}))
    telemetry.close()
    length = sink.latest(names.RL_ROLLOUT_COMPLETION_LENGTH)
    assert (length.kind, length.histogram.zero_count, sum(length.histogram.counts)) == ("exponential_histogram", 1, 2)
    reward = sink.latest(names.RL_ROLLOUT_REWARD).histogram
    assert (reward.counts[0], reward.counts[10], reward.min, reward.sum) == (1, 1, -2.0, None)


def test_a_figure_ends_with_its_step_and_a_sticky_one_stays(
    sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch
) -> None:
    telemetry = start(SFTStep)
    report(telemetry, SFTStep(number=1, loss=2.0, tokens=5))
    telemetry.capture(Report(SFTStep(eval_loss=1.5, timing_s={"eval": 3.0})))
    assert telemetry.flush(5)
    first = {point.name for point in sink.last_export()}
    report(telemetry, SFTStep(number=2, tokens=6, timing_s={"step": 1.0}))
    telemetry.close()
    last = sink.last_export()
    assert names.SFT_STEP_LOSS.name in first
    assert values(last, names.SFT_STEP_LOSS) == {}
    assert values(last, names.SFT_STEP_TOKENS) == {None: 6}
    assert values(last, names.SFT_EVAL_LOSS) == {None: 1.5}
    assert values(last, names.SFT_STEP_TIMING) == {"eval": 3.0, "step": 1.0}


def test_a_loss_that_is_nan_is_absent_and_counted(sink: OtlpSink, start: Start) -> None:
    telemetry = start(SFTStep)
    report(telemetry, SFTStep(number=1, loss=2.0), SFTStep(number=2, loss=float("nan"), tokens=3))
    telemetry.close()
    last = sink.last_export()
    assert values(newest(last), names.SFT_STEP_LOSS) == {}
    assert values(last, names.TELEMETRY_NONFINITE)[names.SFT_STEP_LOSS.name] == 1
    assert values(last, names.SFT_STEP_COUNT) == {None: 2}


def test_nothing_is_counted_before_the_first_step(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    assert telemetry.flush(5)
    assert {point.name for point in sink.last_export()} == {
        names.TELEMETRY_NONFINITE.name,
        names.JOB_STEPS_PAUSED.name,
        names.TELEMETRY_DROPPED.name,
    }
    telemetry.close()


def test_the_total_is_exported_at_every_interval(sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv(INTERVAL, "50")
    report(start(), RLStep(number=1))
    wait_until(lambda: len(sink.series(names.RL_STEP_COUNT)) >= 4)
    assert {point.value for point in sink.series(names.RL_STEP_COUNT)} == {1}


def test_a_process_with_sources_of_its_own_only(sink: OtlpSink, start: Start, failures: Counter) -> None:
    telemetry = start(None)
    telemetry.observe(names.JOB_PLACEMENT, lambda: [(1, {names.ATTR_JOB_RANK.name: 3})])
    telemetry.observe(names.HW_POWER, lambda: [(1 / 0, {})])
    telemetry.close()
    assert values(sink.last_export(), names.JOB_PLACEMENT) == {3: 1}
    assert sink.names() == {names.JOB_PLACEMENT.name}
    assert failures == {(f"the callback of {names.HW_POWER.name}", "ZeroDivisionError"): 1}


def test_what_cannot_be_translated_costs_nothing_else(
    given: Given, start: Start, failures: Counter, log: pytest.LogCaptureFixture
) -> None:
    telemetry = start(meter_provider=given.meter_provider)
    for number in range(1, 4):
        telemetry.capture(Broken())
        report(telemetry, RLStep(number=number, reward=0.5))
    points = given.points()
    assert values(points, names.RL_STEP_COUNT) == {None: 3}
    assert values(points, names.RL_STEP_REWARD) == {None: 0.5}
    assert list(failures.values()) == [3]
    assert sum(record.levelno == logging.WARNING for record in log.records) == 1


def test_a_step_that_fails_counts_and_is_told_of(
    given: Given, start: Start, failures: Counter, log: pytest.LogCaptureFixture
) -> None:
    """A counter that stood still would look like a stalled run."""
    telemetry = start(meter_provider=given.meter_provider)
    report(telemetry, RLStep(number=1, reward=0.5))
    telemetry.capture(Broken(), step=True)
    telemetry.capture(StepFailed(), step=True)
    points = given.points()
    assert values(points, names.RL_STEP_COUNT) == {None: 3}
    assert values(points, names.TELEMETRY_DROPPED)["failed"] == 2
    assert list(failures.values()) == [1]
    telemetry.close()
    assert "steps have no figures, because the telemetry failed in them: 2" in log.text


# -- the queue


def test_what_nobody_collects_is_bounded_and_not_lost(given: Given, start: Start) -> None:
    telemetry, most = start(meter_provider=given.meter_provider), 0
    for number in range(1, 1001):
        report(
            telemetry, RLStep(number=number, duration_s=1.0, reward=float(number), rollout_completion_length=[number])
        )
        most = max(most, telemetry._steps.waiting())
    assert most <= MOST_CAPTURES
    points = given.points()
    assert values(points, names.RL_STEP_COUNT) == {None: 1000}
    assert values(points, names.RL_STEP_REWARD) == {None: 1000.0}
    counts = {point.name: point.histogram.count for point in points if point.histogram}
    assert counts == {names.RL_STEP_DURATION.name: 1000, names.RL_ROLLOUT_COMPLETION_LENGTH.name: 1000}


def test_a_step_is_translated_when_it_is_reported_whatever_exports_it(given: Given, start: Start) -> None:
    """On a provider that nobody ever collects from."""
    telemetry, threads = start(meter_provider=given.meter_provider), []

    class Translated(Report):
        def deliver(self, recorder: Recorder) -> None:
            threads.append(threading.current_thread().name)
            super().deliver(recorder)

    telemetry.capture(Translated(RLStep(number=1)), step=True)
    wait_until(lambda: threads == ["akka-otel-translator"])


class WaitsForTheDevice:
    """A value that the device has not finished yet."""

    def __init__(self) -> None:
        self.translating, self.ready = threading.Event(), threading.Event()

    def deliver(self, recorder: Recorder) -> None:
        self.translating.set()
        self.ready.wait(60)


def test_the_training_never_waits_for_the_translation(sink: OtlpSink, start: Start) -> None:
    """What comes beyond the queue's bound is dropped, counted as steps and as dropped, and said."""
    telemetry, device, beyond = start(), WaitsForTheDevice(), 10
    telemetry.capture(device)
    assert device.translating.wait(5)
    begin = time.monotonic()
    report(telemetry, *(RLStep(number=number, duration_s=1.0) for number in range(1, MOST_CAPTURES + beyond)))
    seconds = time.monotonic() - begin
    telemetry.capture(Report(RLStep(kl=0.5)))
    device.ready.set()
    telemetry.close()
    assert seconds < 30, "the device takes 60 s"
    assert sink.latest(names.RL_STEP_COUNT).value == MOST_CAPTURES + beyond - 1
    assert sink.latest(names.RL_STEP_DURATION).histogram.count == MOST_CAPTURES - 1
    assert sink.latest(names.RL_STEP_KL).value == 0.5, "an evaluation has room of its own"
    assert dropped(sink)["overflow"] == beyond


def test_the_bound_is_one_of_values_too(sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture) -> None:
    class Large(Report):
        values_held = MOST_VALUES // 2

    telemetry, device = start(), WaitsForTheDevice()
    telemetry.capture(device)
    assert device.translating.wait(5)
    for number in range(1, 5):
        telemetry.capture(Large(RLStep(number=number)), step=True)
    device.ready.set()
    telemetry.close()
    assert dropped(sink)["overflow"] == 2
    assert sink.latest(names.RL_STEP_COUNT).value == 4
    assert "come faster" in log.text
    assert "and have none: 2" in log.text


@pytest.mark.parametrize("emptied", [True, False])
def test_the_room_is_that_of_the_steps_that_wait_now(emptied: bool, sink: OtlpSink, start: Start) -> None:
    """Large ones that were there before take none of it, whether they were translated or dropped."""

    class Large(Report):
        values_held = MOST_VALUES // 2

    telemetry, device, small = start(), WaitsForTheDevice(), 10
    telemetry.capture(device)
    assert device.translating.wait(5)
    large = 2 if emptied else 3
    for number in range(1, large + 1):
        telemetry.capture(Large(RLStep(number=number)), step=True)
    if emptied:
        device.ready.set()
        assert telemetry.flush(5)
        device = WaitsForTheDevice()
        telemetry.capture(device)
        assert device.translating.wait(5)
    report(telemetry, *(RLStep(number=number) for number in range(large + 1, large + 1 + small)))
    device.ready.set()
    telemetry.close()
    assert dropped(sink).get("overflow", 0) == (0 if emptied else 1)
    assert sink.latest(names.RL_STEP_COUNT).value == large + small


def test_what_is_no_step_is_bounded_too(sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry, device = start(), WaitsForTheDevice()
    telemetry.capture(device)
    assert device.translating.wait(5)
    for number in range(2 * MOST_CAPTURES + 5):
        telemetry.capture(Report(RLStep(kl=float(number))))
    assert telemetry._steps.waiting() == 2 * MOST_CAPTURES
    device.ready.set()
    telemetry.close()
    assert "evaluations and the like came faster than that: 6" in log.text


def test_the_end_says_what_was_not_worked_out(sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry, device = start(), WaitsForTheDevice()
    telemetry.capture(device)
    report(telemetry, RLStep(number=1), RLStep(number=2))
    telemetry.close(timeout_s=0.3)
    device.ready.set()
    assert "were not yet computed at the end, and are lost: 3" in log.text


def test_a_step_is_taken_however_large_it_is(sink: OtlpSink, start: Start) -> None:
    class Huge(Report):
        values_held = 2 * MOST_VALUES

    telemetry = start()
    telemetry.capture(Huge(RLStep(number=1, reward=1.0)), step=True)
    telemetry.close()
    assert sink.latest(names.RL_STEP_REWARD).value == 1.0


def dropped(sink: OtlpSink) -> dict[str, int]:
    return values(sink.last_export(), names.TELEMETRY_DROPPED)


def test_counters_histograms_and_gauges_of_one_export_are_of_the_same_steps(sink: OtlpSink, start: Start) -> None:
    telemetry, stop = start(), threading.Event()

    def train() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            report(telemetry, RLStep(number=number, duration_s=1.0, reward=float(number), tokens=2 * number))
            time.sleep(0.0005)

    training = threading.Thread(target=train)
    training.start()
    for _ in range(30):
        telemetry.flush(5)
    stop.set()
    training.join()
    telemetry.close()
    seen = set()
    for export in range(sink.metrics()[-1].export + 1):
        points = [point for point in sink.metrics() if point.export == export]
        if steps := values(points, names.RL_STEP_COUNT).get(None):
            (durations,) = (point.histogram.count for point in points if point.histogram)
            reward, tokens = values(points, names.RL_STEP_REWARD)[None], values(points, names.RL_STEP_TOKENS)[None]
            assert (durations, reward, tokens) == (steps, steps, 2 * steps)
            seen.add(steps)
    assert len(seen) > 20


def test_counters_and_gauges_of_one_look_at_a_given_provider_are_of_the_same_steps(given: Given, start: Start) -> None:
    telemetry = start(meter_provider=given.meter_provider)
    for number in range(1, 200):
        report(telemetry, RLStep(number=number, reward=float(number), tokens=2 * number))
        if number % 10 == 0:
            points = given.points()
            reward, tokens = values(points, names.RL_STEP_REWARD)[None], values(points, names.RL_STEP_TOKENS)[None]
            assert (values(points, names.RL_STEP_COUNT)[None], reward, tokens) == (number, number, 2 * number)


def test_an_export_takes_what_was_there_when_it_began(given: Given, start: Start) -> None:
    """Else a training that is quicker than its translation would keep the exporter from ever exporting."""
    telemetry = start(meter_provider=given.meter_provider)

    class Another:
        def deliver(self, recorder: Recorder) -> None:
            telemetry.capture(Another())

    telemetry.capture(Another())
    assert values(given.points(), names.TELEMETRY_NONFINITE)


# -- providers that are handed in


def test_given_providers_are_flushed_and_live_on(given: Given, start: Start) -> None:
    telemetry = start(meter_provider=given.meter_provider, tracer_provider=given.tracer_provider)
    report(telemetry, RLStep(number=1, reward=1.0))
    assert values(given.points(), names.RL_STEP_REWARD) == {None: 1.0}
    telemetry.close()
    assert [span.name for span in given.spans.get_finished_spans()] == [names.SPAN_JOB.name], "flushed"
    given.meter_provider.get_meter("theirs").create_counter("theirs").add(1)
    with given.tracer_provider.get_tracer("theirs").start_as_current_span("theirs"):
        pass
    given.tracer_provider.force_flush()
    assert {"theirs"} == {point.name for point in given.points() if point.kind != "histogram"}, "our series have ended"
    assert [span.name for span in given.spans.get_finished_spans()][1:] == ["theirs"]


def test_a_given_provider_s_own_reader_exports_at_the_end(start: Start) -> None:
    with otlp_sink() as sink:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        reader = PeriodicExportingMetricReader(OTLPMetricExporter(sink.http + "/v1/metrics"), 60_000)
        provider = MeterProvider([reader], shutdown_on_exit=False)
        telemetry = start(meter_provider=provider)
        report(telemetry, RLStep(number=1, reward=2.0))
        telemetry.close()
        assert sink.latest(names.RL_STEP_REWARD).value == 2.0
        provider.shutdown()


def test_a_second_training_on_a_given_provider_is_seen(given: Given, start: Start) -> None:
    for training in (1.0, 2.0):
        telemetry = start(meter_provider=given.meter_provider)
        telemetry.observe(names.JOB_DEVICES, lambda training=training: [(training, {})])
        report(telemetry, RLStep(number=1, reward=training), RLStep(number=2, reward=training, duration_s=1.0))
        points = given.points()
        assert values(points, names.RL_STEP_REWARD) == {None: training}
        assert values(points, names.RL_STEP_COUNT) == {None: 2}
        assert values(points, names.JOB_DEVICES) == {None: training}
        telemetry.close()


def test_providers_that_do_nothing(start: Start) -> None:
    telemetry = start(meter_provider=NoOpMeterProvider(), tracer_provider=NoOpTracerProvider())
    report(telemetry, grpo_step(1))
    telemetry.span(names.SPAN_EVAL, 1, 2)
    telemetry.close()


def test_the_global_providers_are_neither_set_nor_used(sink: OtlpSink, start: Start) -> None:
    before = otel_metrics.get_meter_provider(), otel_trace.get_tracer_provider()
    telemetry = start()
    report(telemetry, grpo_step(1))
    assert (otel_metrics.get_meter_provider(), otel_trace.get_tracer_provider()) == before
    assert not otel_trace.get_current_span().get_span_context().is_valid
    telemetry.close()


# -- several


def test_two_trainings_in_one_process_do_not_mix(sink: OtlpSink, start: Start) -> None:
    one, other = start(run_id="one"), start(SFTStep, run_id="other")
    for number in range(1, 4):
        report(one, RLStep(number=number, reward=float(number)))
        report(other, SFTStep(number=number, loss=float(-number)))
    one.close()
    report(other, SFTStep(number=4, loss=-4.0))
    other.close()
    by_run: dict[str, dict[str, Any]] = {}
    for point in sink.metrics():
        by_run.setdefault(point.resource[names.ATTR_RUN_ID.name], {})[point.name] = point.value
    assert by_run["one"][names.RL_STEP_REWARD.name] == 3.0
    assert by_run["one"][names.RL_STEP_COUNT.name] == 3
    assert by_run["other"][names.SFT_STEP_LOSS.name] == -4.0
    assert by_run["other"][names.SFT_STEP_COUNT.name] == 4
    assert not {name for name in by_run["one"] if ".sft." in name}
    assert not {name for name in by_run["other"] if ".rl." in name}


# -- spans


def test_the_job_joins_the_trace_that_started_it(sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    environment.setenv("TRACEPARENT", f"00-{trace_id}-{span_id}-01")
    environment.setenv("TRACESTATE", "vendor=1")
    telemetry = start()
    telemetry.span(names.SPAN_EVAL, 10**18, 2 * 10**18, {"note": "n"})
    telemetry.close()
    spans = {span.name: span for span in sink.spans()}
    job, evaluation = spans[names.SPAN_JOB.name], spans[names.SPAN_EVAL.name]
    assert (job.trace_id, job.parent_span_id, job.trace_state) == (trace_id, span_id, "vendor=1")
    assert (evaluation.trace_id, evaluation.parent_span_id) == (trace_id, job.span_id)
    assert (evaluation.start_ns, evaluation.end_ns, evaluation.attributes) == (10**18, 2 * 10**18, {"note": "n"})
    assert job.status == 0


def test_trainings_of_one_seed_have_traces_of_their_own(sink: OtlpSink, given: Given, start: Start) -> None:
    for _ in range(2):
        random.seed(42)
        start(meter_provider=given.meter_provider).close()
    assert len({span.trace_id for span in sink.spans()}) == 2


def test_a_failed_training_is_a_failed_job(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    report(telemetry, RLStep(number=1, reward=1.0))
    telemetry.close(ValueError("no such row"))
    assert [span.status for span in sink.spans()] == [2]
    assert sink.latest(names.RL_STEP_REWARD).value == 1.0, "what was recorded is sent all the same"


def test_of_a_failure_only_its_type_is_told(given: Given, start: Start) -> None:
    start(meter_provider=given.meter_provider, tracer_provider=given.tracer_provider).close(ValueError("my secret"))
    (job,) = given.spans.get_finished_spans()
    assert job.status.description == "ValueError"
    assert "secret" not in job.to_json()


# -- closing


def test_closing_twice_is_closing_once(sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry = start()
    report(telemetry, RLStep(number=1))
    telemetry.close()
    exports = len(sink.requests)
    log.clear()
    telemetry.close()
    telemetry.close(ValueError())
    assert len(sink.requests) == exports
    assert log.records == []


def threads_of_telemetry() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("akka-otel", "Otel"))}


def test_after_the_end_nothing_is_taken_and_no_thread_is_left(sink: OtlpSink, start: Start) -> None:
    before = threads_of_telemetry()
    telemetry = start()
    assert len(threads_of_telemetry() - before) == 5
    report(telemetry, RLStep(number=1))
    telemetry.close()
    report(telemetry, *(RLStep(number=number) for number in range(2, 10)))
    assert not telemetry.recording
    assert telemetry._steps.waiting() == 0
    assert {t.name for t in threads_of_telemetry() - before} == set()


def test_a_closed_telemetry_is_forgotten(given: Given, environment: pytest.MonkeyPatch) -> None:
    """Neither the exit handler, nor the fork handler, nor a provider that lives on keeps it."""
    telemetry = Telemetry.start(identify({}, engine={}), RLStep, meter_provider=given.meter_provider)
    report(telemetry, grpo_step(1))
    given.points()
    telemetry.close()
    forgotten = weakref.ref(telemetry)
    del telemetry
    gc.collect()
    assert forgotten() is None


def test_an_end_within_a_running_export_waits_for_the_last_figures(sink: OtlpSink, start: Start) -> None:
    telemetry, exporting = start(), threading.Event()

    def slow() -> list:
        exporting.set()
        time.sleep(0.3)
        return [(1.0, {})]

    telemetry.observe(names.JOB_DEVICES, slow)
    threading.Thread(target=telemetry.flush, args=(5,)).start()
    assert exporting.wait(5)
    report(telemetry, RLStep(number=1, reward=3.0))
    telemetry.close()
    assert sink.latest(names.RL_STEP_REWARD).value == 3.0
    assert sink.latest(names.RL_STEP_COUNT).value == 1


def test_an_export_that_does_not_end_is_left_behind_in_time(
    sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture
) -> None:
    telemetry, release = start(), threading.Event()
    telemetry.observe(names.JOB_DEVICES, lambda: [(release.wait(20), {})])
    begin = time.monotonic()
    telemetry.close(timeout_s=0.3)
    seconds = time.monotonic() - begin
    release.set()
    assert 0.25 < seconds < 10, "the export hangs for 20 s"
    assert "the last figures were not sent to otlp" in log.text
    assert "they could not be collected within 0.3 s" in log.text


def test_a_flush_sends_what_was_reported(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    for number in range(1, 4):
        report(telemetry, RLStep(number=number, reward=float(number)))
        assert telemetry.flush(5)
        assert sink.latest(names.RL_STEP_REWARD).value == float(number)


def test_the_first_span_may_begin_within_a_flush(sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch) -> None:
    telemetry = start()
    flush = telemetry._metrics.flush

    def begin_a_span_meanwhile(deadline: float) -> bool:
        telemetry.span(names.SPAN_EVAL, 10**18, 2 * 10**18)
        return flush(deadline)

    environment.setattr(telemetry._metrics, "flush", begin_a_span_meanwhile)
    assert telemetry.flush(5)
    environment.undo()
    assert telemetry.flush(5)
    wait_until(lambda: names.SPAN_EVAL.name in [span.name for span in sink.spans()])


# -- environments


def test_a_disabled_sdk_costs_nothing(
    start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    environment.setenv("OTEL_SDK_DISABLED", "true")
    telemetry = start()
    assert not telemetry.recording
    report(telemetry, *(grpo_step(number) for number in range(1, 4)))
    telemetry.observe(names.JOB_DEVICES, lambda: [(1 / 0, {})])
    telemetry.span(names.SPAN_EVAL, 1, 2)
    assert telemetry.flush(1)
    telemetry.close()
    assert "no figures are exported: OTEL_SDK_DISABLED is true" in log.text


def test_no_secret_of_an_endpoint_is_logged(
    start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    with refusing() as url:
        secret = url.replace("://", "://user:pa55word@") + "/v1/metrics?api_key=s3cr3tvalue"
        environment.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", secret)
        environment.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        telemetry = start()
        telemetry.flush(5)
        telemetry.close()
    assert "figures go to otlp" in log.text
    assert "does not accept the telemetry" in log.text
    assert "pa55word" not in log.text
    assert "s3cr3tvalue" not in log.text


GARBAGE = ["0", "-1", "1e999", "x" * 300, ",é=%ZZ,"]
VARIABLES = """
OTEL_METRICS_EXPORTER OTEL_TRACES_EXPORTER OTEL_METRIC_EXPORT_INTERVAL OTEL_METRIC_EXPORT_TIMEOUT
OTEL_METRICS_EXEMPLAR_FILTER OTEL_RESOURCE_ATTRIBUTES OTEL_SERVICE_NAME OTEL_EXPERIMENTAL_RESOURCE_DETECTORS
OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION
OTEL_BSP_SCHEDULE_DELAY OTEL_BSP_MAX_QUEUE_SIZE OTEL_BSP_EXPORT_TIMEOUT OTEL_BSP_MAX_EXPORT_BATCH_SIZE
OTEL_TRACES_SAMPLER OTEL_TRACES_SAMPLER_ARG OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT
OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_COMPRESSION OTEL_EXPORTER_OTLP_CERTIFICATE
OTEL_EXPORTER_OTLP_CLIENT_KEY OTEL_ATTRIBUTE_COUNT_LIMIT TRACEPARENT TRACESTATE TORCHELASTIC_RESTART_COUNT
""".split()


@pytest.mark.parametrize("variable", VARIABLES)
def test_no_value_of_a_variable_stops_the_figures(
    variable: str, sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch
) -> None:
    """Sent or, where the value leaves no exporter, written; in any case there, and without an exception."""
    for number, value in enumerate(GARBAGE):
        environment.setenv(variable, value)
        telemetry = start(run_id=str(number))
        report(telemetry, RLStep(number=1, reward=1.0))
        telemetry.close()
        sent = {point.resource[names.ATTR_RUN_ID.name] for point in sink.series(names.RL_STEP_REWARD)}
        file = Path("akka-otel", str(number), "metrics.jsonl")
        assert str(number) in sent or names.RL_STEP_REWARD.name in file.read_text(), value


def test_the_scope_of_figures_and_spans_has_our_version(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    report(telemetry, RLStep(number=1, reward=1.0))
    telemetry.close()
    figures = [scope.scope for sent in sink._metrics for of in sent.resource_metrics for scope in of.scope_metrics]
    spans = [scope.scope for sent in sink._traces for of in sent.resource_spans for scope in of.scope_spans]
    assert {(scope.name, scope.version) for scope in figures} == {(SCOPE, akka_otel_callbacks.__version__)}
    assert {(scope.name, scope.version) for scope in spans} == {(SCOPE, akka_otel_callbacks.__version__)}


def test_the_start_says_where_the_figures_go(
    sink: OtlpSink, start: Start, log: pytest.LogCaptureFixture, environment: pytest.MonkeyPatch
) -> None:
    start()
    protocol, endpoint = os.environ["OTEL_EXPORTER_OTLP_PROTOCOL"], os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert f"figures go to otlp {protocol} {endpoint}" in log.text
    assert "(OTEL_EXPORTER_OTLP_ENDPOINT is set)" in log.text
    log.clear()
    environment.setenv("OTEL_METRICS_EXPORTER", "file")
    start(run_id="run-9")
    assert "figures go to file akka-otel/run-9/metrics.jsonl (OTEL_METRICS_EXPORTER=file)" in log.text
    assert f"look with `akka-otel show {Path.cwd()}/akka-otel/run-9`" in log.text
    assert all(record.name == logger.name for record in log.records)
