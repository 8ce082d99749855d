"""Every step arrives, whatever the interval and the exporters, and what is out is safe from the process's death."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import Histogram as SdkHistogram
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

from akka_otel_callbacks.common.export.instruments import views
from akka_otel_callbacks.common.run.identity import RunIdentity, identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from tests.common.reports import Report, grpo_step
from tests.common.scripts import PRELUDE
from tests.common.scripts import environment as variables_of_a_process
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until
from tests.support.points import Point, points_of

Start = Callable[..., Telemetry]
CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


@pytest.fixture
def sink(environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.http)
        yield opened


def report(telemetry: Telemetry, *steps: RLStep | SFTStep) -> None:
    for step in steps:
        telemetry.capture(Report(step), step=step.number is not None)


def written(path: Path) -> list[Point]:
    """The points of an embedded file."""
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    requests = [ParseDict(document, ExportMetricsServiceRequest()) for document in documents]
    return [point for index, request in enumerate(requests) for point in points_of(request.resource_metrics, index)]


def own_values(points: Sequence[Point], metric: Metric) -> list[Any]:
    """A gauge's values in order of their times, without the repetition of the current one at an export's own time."""
    found = sorted((point for point in points if point.name == metric.name), key=lambda point: point.time_ns)
    return [value for value, _ in itertools.groupby(point.value for point in found)]


def identity_of(run_id: str) -> RunIdentity:
    return identify({}, engine={}, run_id=run_id)


STEPS = range(1, 13)
REWARDS = [grpo_step(number).reward for number in STEPS]


# -- the exporters


def test_twelve_steps_within_one_interval(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    report(telemetry, *map(grpo_step, STEPS))
    telemetry.close()
    assert own_values(sink.metrics(), names.RL_STEP_REWARD) == REWARDS
    assert sink.latest(names.RL_STEP_COUNT).value == 12


def test_twelve_steps_within_one_line_of_the_embedded_file(environment: pytest.MonkeyPatch, start: Start) -> None:
    environment.setenv("AKKA_OTEL_DIR", "here")
    telemetry = start()
    report(telemetry, *map(grpo_step, STEPS))
    telemetry.close()
    points = written(Path("here/metrics.jsonl"))
    assert own_values(points, names.RL_STEP_REWARD) == REWARDS
    assert points[-1].export < 3, "a line at most every two seconds"


def test_two_evaluations_within_one_interval(sink: OtlpSink, start: Start) -> None:
    telemetry = start(SFTStep)
    for number, loss in ((1, 2.5), (2, 1.5)):
        report(telemetry, SFTStep(number=number, loss=float(number)), SFTStep(eval_loss=loss))
    report(telemetry, SFTStep(number=3, loss=3.0))
    telemetry.close()
    assert own_values(sink.metrics(), names.SFT_EVAL_LOSS) == [2.5, 1.5]
    assert own_values(sink.metrics(), names.SFT_STEP_LOSS) == [1.0, 2.0, 3.0]


def test_two_exporters_have_every_step_each(sink: OtlpSink, environment: pytest.MonkeyPatch, start: Start) -> None:
    """Each at its own pace: what one has exported is not gone for the other."""
    environment.setenv("OTEL_METRICS_EXPORTER", "otlp,file")
    environment.setenv("AKKA_OTEL_DIR", "here")
    telemetry = start()
    for number in STEPS:
        report(telemetry, grpo_step(number))
        if number == 5:
            assert telemetry.flush(10)
    telemetry.close()
    for points in (sink.metrics(), written(Path("here/metrics.jsonl"))):
        assert own_values(points, names.RL_STEP_REWARD) == REWARDS
        assert [point.value for point in points if point.name == names.RL_STEP_COUNT.name][-1] == 12


@pytest.mark.parametrize("also", ["", ",file"])
def test_deltas_add_up_and_have_their_own_minimum(
    also: str, sink: OtlpSink, environment: pytest.MonkeyPatch, start: Start
) -> None:
    environment.setenv(TEMPORALITY, "delta")
    environment.setenv("OTEL_METRICS_EXPORTER", f"otlp{also}")
    environment.setenv("AKKA_OTEL_DIR", "here")
    telemetry = start()
    given = [[3.0, 4.0], [0.5, 7.0], [-1.0, 2.0], [5.0]]
    for number, rewards in enumerate(given, 1):
        report(telemetry, RLStep(number=number, rollout_reward={"total": rewards}, rollout_completion_length=rewards))
        assert telemetry.flush(10)
    telemetry.close()
    points = [point for point in sink.series(names.RL_ROLLOUT_REWARD) if point.histogram.count]
    assert not any(point.cumulative for point in points)
    histograms = [point.histogram for point in points]
    assert [(h.count, h.min, h.max) for h in histograms] == [(len(r), min(r), max(r)) for r in given]
    assert [h.sum for h in histograms] == [7.0, 7.5, None, 5.0]
    lengths = [p.histogram for p in sink.series(names.RL_ROLLOUT_COMPLETION_LENGTH) if p.histogram.count]
    assert [sum(h.counts) + h.zero_count for h in lengths] == list(map(len, given))
    for one, other in itertools.pairwise(points):
        assert one.start_ns < one.time_ns <= other.start_ns
    assert sum(point.value for point in sink.series(names.RL_STEP_COUNT)) == len(given)
    if also:
        whole = [p for p in written(Path("here/metrics.jsonl")) if p.name == names.RL_ROLLOUT_REWARD.name][-1]
        assert whole.cumulative
        assert (whole.histogram.count, whole.histogram.min, whole.histogram.sum) == (7, -1.0, None)


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_a_provider_that_is_handed_in_counts_every_value(temporality: AggregationTemporality, start: Start) -> None:
    """Its reader can read instruments only: the latest figures, and all counts."""
    kinds = (SdkHistogram, ObservableCounter)
    reader = InMemoryMetricReader(preferred_temporality=dict.fromkeys(kinds, temporality))
    telemetry = start(meter_provider=MeterProvider([reader], views=views(), shutdown_on_exit=False))
    points: list[Point] = []
    for number in STEPS:
        rewards = {"total": [-0.5, float(number)]}
        report(telemetry, RLStep(number=number, reward=float(number), rollout_reward=rewards))
        if number % 4 == 0:
            data = reader.get_metrics_data()
            assert data is not None
            points += points_of(encode_metrics(data).resource_metrics, number)
    assert [point.value for point in points if point.name == names.RL_STEP_REWARD.name] == [4.0, 8.0, 12.0]
    counts = [point.histogram.count for point in points if point.histogram is not None]
    steps = [point.value for point in points if point.name == names.RL_STEP_COUNT.name]
    negative = [point.value for point in points if point.name == names.RL_ROLLOUT_REWARD_NEGATIVE.name]
    assert counts == ([8, 8, 8] if temporality is DELTA else [8, 16, 24])
    assert steps == negative == ([4, 4, 4] if temporality is DELTA else [4, 8, 12])


# -- death


RUN = """
from akka_otel_callbacks.common.export import selection
selection.STEP_PAUSE_S = 0.3
telemetry = start()
print("ready", flush=True)
for number, _ in enumerate(sys.stdin, 1):  # a line for each step, so that the next one is under way until then
    telemetry.capture(Report(grpo_step(number)), step=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_has_lost_the_step_under_way_only(
    death: signal.Signals, sink: OtlpSink, tmp_path: Path
) -> None:
    """Of steps that take longer than the pause between two exports, each is at the collector before the next one ends,
    long before the interval does."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + RUN],
        env=variables_of_a_process({"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http}),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdout.readline()
            steps = random.randint(2, 5)
            for number in range(1, steps + 1):
                process.stdin.write("next\n")
                process.stdin.flush()
                reward = grpo_step(number).reward
                wait_until(lambda reward=reward: reward in own_values(sink.metrics(), names.RL_STEP_REWARD), 30)
            process.send_signal(death)
            assert process.wait(30) == -death
        finally:
            process.kill()
    assert own_values(sink.metrics(), names.RL_STEP_REWARD) == [grpo_step(n).reward for n in range(1, steps + 1)]
    assert sink.latest(names.RL_STEP_COUNT).value == steps
    assert sink.latest(names.RL_ROLLOUT_COMPLETION_LENGTH).histogram.count == 32 * steps


# -- thousands at once


def test_a_worker_exports_first_after_its_share_of_the_interval(sink: OtlpSink, start: Start) -> None:
    """Of many workers one whose share is a second or two of the default interval, a minute: in that time it has found
    what it observes."""
    early = next(name for name in map("run-{}".format, itertools.count()) if 0.02 < identity_of(name).share < 0.04)
    worker = start(step_type=None, run_id=early)
    worker.observe(names.JOB_DEVICES, lambda: ((4.0, {}),))
    wait_until(sink.metrics, 30)
    assert sink.latest(names.JOB_DEVICES).value == 4
