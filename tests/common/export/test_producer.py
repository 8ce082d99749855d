"""What an exporter is given: every step at its own time, again where an export failed, and no more than a bound."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.clock import MILLISECOND_NS
from akka_otel_callbacks.common.export.acceptance import REJECTED, Reply
from akka_otel_callbacks.common.export.otlp.message import metrics_request
from akka_otel_callbacks.common.export.producer import Producer, Run
from akka_otel_callbacks.common.export.push import Push
from akka_otel_callbacks.common.export.targets.console import ConsoleTarget
from akka_otel_callbacks.common.export.unsent import MOST_STEPS
from akka_otel_callbacks.common.recording.observed import Observed
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from tests.common.reports import Report, values
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Point, newest, points_of

Start = Callable[..., Telemetry]
BEGIN_NS = 10**18
ALL_DELTAS = frozenset({Kind.COUNTER, Kind.HISTOGRAM})


class Feed:
    """A run whose reports are translated here, a second after each other."""

    def __init__(self, step_type: type[Step] = RLStep, **options: Any) -> None:
        self.steps = Steps(step_type)
        self.recorder = self.steps.recorder
        self.observed = Observed()
        self.run = Run(Resource({}), BEGIN_NS, self.observed, self.steps)
        self.producer = Producer(self.run, **options)
        self.reported = 0

    def report(self, *steps: Step) -> None:
        for step in steps:
            self.reported += 1
            self.recorder.reported_ns = BEGIN_NS + self.reported * 10**9
            self.recorder.record(step)

    def points(self) -> list[Point]:
        return points(self.producer.collect())


def points(data: MetricsData | None) -> list[Point]:
    return [] if data is None else list(points_of(metrics_request(data).resource_metrics))


def course(found: Sequence[Point], metric: Metric) -> list[tuple[int, Any]]:
    """A gauge's points before the export's own time: the second of the report, and the value."""
    return [
        ((point.time_ns - BEGIN_NS) // 10**9, point.value)
        for point in found
        if point.name == metric.name and point not in newest(found)
    ]


def test_each_step_has_points_at_the_time_of_its_report_and_the_latest_at_the_export_s_own() -> None:
    feed = Feed()
    feed.report(*(RLStep(number=n, reward=float(n), kl=0.1 if n == 2 else None) for n in (1, 2, 3)))
    before_ns = time.time_ns()
    found = feed.points()
    assert course(found, names.RL_STEP_REWARD) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert course(found, names.RL_STEP_KL) == [(2, 0.1)], "what a step did not have has no point"
    assert values(newest(found), names.RL_STEP_REWARD) == {None: 3.0}
    assert values(newest(found), names.RL_STEP_KL) == {}
    assert before_ns <= newest(found)[0].time_ns <= time.time_ns()
    feed.producer.sent()
    later = feed.points()
    assert course(later, names.RL_STEP_REWARD) == [], "they have arrived"
    assert values(later, names.RL_STEP_REWARD) == {None: 3.0}


def test_every_evaluation_has_a_point_and_a_sticky_figure_none_for_the_steps_after_it() -> None:
    feed = Feed(SFTStep)
    feed.report(SFTStep(number=1, loss=1.0), SFTStep(eval_loss=9.0), SFTStep(number=2), SFTStep(eval_loss=9.0))
    feed.report(SFTStep(number=3, loss=3.0))
    found = feed.points()
    assert course(found, names.SFT_EVAL_LOSS) == [(2, 9.0), (4, 9.0)]
    assert course(found, names.SFT_STEP_LOSS) == [(1, 1.0), (5, 3.0)]
    assert values(newest(found), names.SFT_EVAL_LOSS) == {None: 9.0}


def test_a_step_that_is_reported_twice_has_one_point_and_another_for_what_is_new() -> None:
    feed = Feed()
    feed.report(RLStep(number=1, reward=0.5, kl=0.25), RLStep(number=1, reward=0.5, kl=0.125, entropy=1.0))
    found = feed.points()
    assert course(found, names.RL_STEP_REWARD) == [(1, 0.5)]
    assert course(found, names.RL_STEP_KL) == [(1, 0.25), (2, 0.125)]
    assert course(found, names.RL_STEP_ENTROPY) == [(2, 1.0)]


# -- a bound


@given(steps=st.integers(0, 5 * MOST_STEPS), failures=st.integers(0, 3))
def test_more_steps_than_an_export_carries_are_thinned_evenly_and_counted(steps: int, failures: int) -> None:
    feed = Feed()
    feed.report(RLStep(timing_s={"eval": 1.0}))
    for number in range(1, steps + 1):
        feed.report(RLStep(number=number, tokens=float(number)))
        if failures and number % (steps // failures + 1) == 0:
            feed.points()  # it does not arrive
    feed.report(RLStep(timing_s={"eval": 2.0}))
    found = feed.points()
    sent = [value for _, value in course(found, names.RL_STEP_TOKENS)]
    assert len(sent) == min(steps, len(sent)) <= MOST_STEPS
    assert sent == sorted(set(sent))
    assert not sent or (sent[0], sent[-1]) == (1.0, steps), "the latest is never left out: its figures arrive anyway"
    gaps = {later - earlier for earlier, later in itertools.pairwise(sent[:-1])}
    assert not gaps or max(gaps) <= 8 * max(1, min(gaps)), "an even selection"
    assert values(newest(found), names.TELEMETRY_DROPPED) == {
        "overflow": 0,
        "failed": 0,
        "thinned": steps - len(sent),
        "rejected": 0,
    }
    assert values(newest(found), names.RL_STEP_COUNT) == ({None: steps} if steps else {})
    assert [value for _, value in course(found, names.RL_STEP_TIMING)] == [1.0, 2.0], "evaluations are kept"


def test_a_selection_is_even_where_nothing_failed() -> None:
    feed = Feed()
    feed.report(*(RLStep(number=n, tokens=float(n)) for n in range(1, 3 * MOST_STEPS + 1)))
    *sent, latest = [value for _, value in course(feed.points(), names.RL_STEP_TOKENS)]
    assert {later - earlier for earlier, later in itertools.pairwise(sent)} == {4.0}
    assert latest == 3 * MOST_STEPS
    feed.producer.sent()
    feed.report(*(RLStep(number=1000 + n, tokens=float(n)) for n in (1, 2, 3)))
    assert [value for _, value in course(feed.points(), names.RL_STEP_TOKENS)] == [1.0, 2.0, 3.0]


# -- exports that fail


OUTCOMES = st.sampled_from(["it fails", "it arrives", "only its oldest step arrives"])
REPORTS = st.lists(st.tuples(st.lists(st.floats(-5, 5), min_size=1, max_size=4), OUTCOMES), max_size=12)


@given(reports=REPORTS)
def test_what_arrives_adds_up_whatever_fails(reports: list[tuple[list[float], str]]) -> None:
    """The changes that arrived come to the totals, and each step's own points arrive once."""
    feed, ticks = Feed(deltas=ALL_DELTAS), [0]
    feed.observed.add(names.GPU_XID_ERRORS, lambda: [(ticks[0], {"hw.id": "a"}), (2 * ticks[0], {"hw.id": "b"})])
    arrived: list[list[Point]] = []
    tokens: list[Any] = []
    for number, (rewards, outcome) in enumerate([*reports, ([0.5], "it arrives")], 1):
        ticks[0] += number
        feed.report(RLStep(number=number, rollout_reward={"total": rewards}, tokens=float(number)))
        found = points(feed.producer.collect(most_steps=1 if "oldest" in outcome else None))
        if outcome != "it fails":
            feed.producer.sent()
            arrived.append(found)
            repeated = [] if feed.producer.is_part else newest(found)
            tokens += [p.value for p in found if p.name == names.RL_STEP_TOKENS.name and p not in repeated]
    all_points = [point for export in arrived for point in export]
    everything = [value for rewards, _ in [*reports, ([0.5], "")] for value in rewards]
    histograms = [point.histogram for point in all_points if point.name == names.RL_ROLLOUT_REWARD.name]
    assert sum(histogram.count for histogram in histograms) == len(everything)
    assert min(histogram.min for histogram in histograms) == min(everything)
    assert max(histogram.max for histogram in histograms) == max(everything)
    assert sum(p.value for p in all_points if p.name == names.RL_STEP_COUNT.name) == len(reports) + 1
    xids = [p.value for p in all_points if p.name == names.GPU_XID_ERRORS.name and p.attributes["hw.id"] == "b"]
    assert sum(xids) == 2 * ticks[0]
    assert tokens == [float(number) for number in range(1, len(reports) + 2)]
    starts = [(p.start_ns, p.time_ns) for p in all_points if p.name == names.RL_STEP_COUNT.name]
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(starts)), "without gap or overlap"


PREFERENCE = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"


@pytest.fixture(params=["delta", "lowmemory", "cumulative"])
def sink(request: pytest.FixtureRequest, environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    environment.setenv(PREFERENCE, request.param)
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.http)
        yield opened


def test_after_an_outage_the_next_export_has_what_it_swallowed(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    for number, status in enumerate((200, 500, 500, 200), 1):
        sink.status = status
        step = RLStep(number=number, reward=float(number), duration_s=1.0, rollout_completion_length=[number] * 3)
        telemetry.capture(Report(step), step=True)
        assert telemetry.flush(10)
    telemetry.close()
    deltas = {"delta": {"sum", "histogram"}, "lowmemory": {"histogram"}, "cumulative": set()}[os.environ[PREFERENCE]]
    for metric, kind, expected in (
        (names.RL_STEP_COUNT, "sum", 4),
        (names.RL_STEP_DURATION, "histogram", 4),
        (names.RL_ROLLOUT_COMPLETION_LENGTH, "histogram", 12),
    ):
        counts = [point.histogram.count if point.histogram else point.value for point in sink.series(metric)]
        assert (sum(counts) if kind in deltas else counts[-1]) == expected, metric.name
        assert {point.cumulative for point in sink.series(metric)} == {kind not in deltas}
    own = [
        p
        for p in sink.series(names.RL_STEP_REWARD)
        if p not in newest([q for q in sink.metrics() if q.export == p.export])
    ]
    assert [point.value for point in own] == [1.0, 2.0, 3.0, 4.0]


# -- what arrived, and what is missing


class Exporter(MetricExporter):
    def __init__(self, *results: bool | Exception, reply: Reply | None = None) -> None:
        super().__init__()
        self.results, self.reply, self.exported = [*results], reply, []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        self.exported.append(points(metrics_data))
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return MetricExportResult.SUCCESS if result else MetricExportResult.FAILURE

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None: ...


def pushed(exporter: Exporter, steps: int) -> tuple[Feed, Push]:
    feed = Feed()
    push = Push(exporter, feed.run, ConsoleTarget("asked"))
    feed.report(*(RLStep(number=number, tokens=float(number)) for number in range(1, steps + 1)))
    return feed, push


def test_what_arrived_is_not_missing() -> None:
    _, push = pushed(Exporter(True), 3)
    assert push.export()
    assert push.missing(2.0, ended=True) is None


@pytest.mark.parametrize(
    ("steps", "reply", "said"),
    [
        (12, Reply(False, "503 Service Unavailable", "503"), "12 steps were not sent to {}: 503 Service Unavailable"),
        (1, Reply(False, "Connection refused", "away"), "1 step was not sent to {}: Connection refused"),
        (2, None, "2 steps were not sent to {}: it did not take them"),
        (0, Reply(False, "404 Not Found", "404"), "the last figures were not sent to {}: 404 Not Found"),
    ],
)
def test_the_end_says_how_much_is_missing_and_why(steps: int, reply: Reply | None, said: str) -> None:
    _, push = pushed(Exporter(False, reply=reply), steps)
    assert not push.export()
    assert push.missing(2.0, ended=True) == said.format("console")


def test_a_receiver_that_does_not_answer_is_told_from_a_collection_that_does_not_end() -> None:
    gate, reached = threading.Event(), threading.Event()

    class Silent(Exporter):
        def export(self, *args: Any, **kwargs: Any) -> MetricExportResult:
            reached.set()
            gate.wait(10)
            return super().export(*args, **kwargs)

    def slow() -> list[Any]:
        reached.set()
        gate.wait(10)
        return []

    for source, said in ((None, "it did not answer within 2 s"), (slow, "they could not be collected within 2 s")):
        feed, push = pushed(Silent(True), 1)
        if source is not None:
            feed.observed.add(names.JOB_DEVICES, source)
        exporting = threading.Thread(target=push.export)
        exporting.start()
        assert reached.wait(5)
        assert said in (push.missing(2.0, ended=False) or "")
        gate.set()
        exporting.join(5)
        gate.clear(), reached.clear()


@pytest.mark.parametrize("result", [False, OSError("no route")])
def test_an_export_that_failed_is_sent_again(result: Any) -> None:
    exporter = Exporter(result, True)
    _, push = pushed(exporter, 2)
    with contextlib.suppress(OSError):
        assert not push.export()
    assert push.export()
    assert [course(export, names.RL_STEP_TOKENS) for export in exporter.exported] == [[(1, 1.0), (2, 2.0)]] * 2


def test_what_a_receiver_took_in_part_is_not_sent_again() -> None:
    exporter = Exporter(False, True, reply=Reply(False, "it rejected 3 of the points", REJECTED))
    _, push = pushed(exporter, 2)
    assert not push.export()
    push.export()
    assert course(exporter.exported[1], names.RL_STEP_TOKENS) == []


# -- times


def test_no_value_is_said_to_hold_later_than_a_step_that_waits_for_its_translation() -> None:
    """Else that step's own points, which come with the next export, would be older than what was sent: a server
    refuses those."""
    feed = Feed(patience_s=0.01)
    feed.report(RLStep(number=1, tokens=1.0))
    feed.steps.add(Report(RLStep(number=2, tokens=2.0)), step=True)  # whose thread is not running
    waiting_since_ns = time.time_ns()
    time.sleep(0.01)
    shown = [point for point in feed.points() if point.name == names.RL_STEP_TOKENS.name]
    assert shown[-1].time_ns <= waiting_since_ns
    feed.steps.start()
    assert feed.steps.catch_up(5)
    feed.producer.sent()
    later = [point for point in feed.points() if point.name == names.RL_STEP_TOKENS.name]
    assert shown[-1].time_ns < later[0].time_ns <= waiting_since_ns
    assert [point.value for point in later] == [2.0, 2.0]
    feed.steps.stop()


@given(st.lists(st.sampled_from(["quick step", "late step", "waiting step", "export", "export in parts"]), max_size=30))
def test_each_export_begins_in_a_millisecond_after_the_last_and_has_a_series_once_in_each(events: list[str]) -> None:
    """Prometheus keeps milliseconds, drops the second point of one, and refuses an export that begins before the one
    before it ended: as it makes a point of `target_info` for both."""
    feed, reported_ns, last_ms = Feed(patience_s=0), time.time_ns(), 0
    feed.observed.add(names.HW_POWER, lambda: [(250.0, {})])
    for number, event in enumerate([*events, "export"]):
        while event.startswith("export"):
            exported = points(feed.producer.collect(most_steps=1 if "parts" in event else None))
            feed.producer.sent()
            times = [point.time_ns // MILLISECOND_NS for point in exported]
            assert len({(p.name, *p.attributes.items(), ms) for p, ms in zip(exported, times, strict=True)}) == len(
                times
            )
            assert min(times) > last_ms
            last_ms = max(times)
            if not feed.producer.is_part:
                break
        if event == "waiting step":
            feed.steps.add(Report(RLStep(number=number, tokens=2.0)), step=True)  # whose thread is not running
        elif event.endswith("step"):
            reported_ns += 10 * MILLISECOND_NS if event == "late step" else 1000
            feed.recorder.reported_ns = reported_ns
            feed.recorder.record(RLStep(number=number, tokens=1.0))


def test_a_step_has_the_time_of_its_report_however_late_it_is_translated(sink: OtlpSink, start: Start) -> None:
    telemetry = start()
    telemetry.capture(Report(RLStep(number=1, tokens=1.0), seconds=0.3), step=True)
    reported_ns = time.time_ns()
    assert telemetry.flush(10)
    first = sink.series(names.RL_STEP_TOKENS)[0]
    assert abs(first.time_ns - reported_ns) < 0.2e9
    telemetry.close()


# -- what an encoder may not take


def test_no_label_costs_an_export() -> None:
    feed = Feed()
    feed.report(RLStep(number=1, reward_term={"half \ud800": 1.0, "é": 2.0}))
    feed.observed.add(names.HW_POWER, lambda: [(float("nan"), {}), (None, {"a": 1}), ("1", {"a": 2}), (7, {"a": 3})])
    found = feed.points()
    terms = values(newest(found), names.RL_STEP_REWARD_TERM)
    assert terms.pop("é") == 2.0
    assert [*terms.values()] == [1.0]
    assert values(found, names.HW_POWER) == {3: 7}


def test_of_two_sources_that_give_the_same_series_the_later_one_counts() -> None:
    feed = Feed()
    feed.observed.add(names.HW_POWER, lambda: [(1.0, {"hw.id": "a"})])
    end = feed.observed.add(names.HW_POWER, lambda: [(2.0, {"hw.id": "a"})])
    assert [p.value for p in feed.points() if p.name == names.HW_POWER.name] == [2.0]
    end()
    assert [p.value for p in feed.points() if p.name == names.HW_POWER.name] == [1.0]
