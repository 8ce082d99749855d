"""Reported steps as figures: what counts as a step, what is published, what is counted instead."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.recorder import Record, Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import COUNTS, DISTRIBUTIONS, GAUGES, RLStep, SFTStep, Step
from tests.common.reports import ROLLOUTS, TERMS, grpo_step

NAN, INF = math.nan, math.inf


class Recording(Recorder):
    """A recorder whose histogram values are kept."""

    def __init__(self, step_type: type[Step] = RLStep) -> None:
        self.records: list[tuple[Metric, float, dict[str, Any]]] = []
        self.heard: list[Record] = []
        super().__init__(step_type, self._keep)

    def _keep(self, record: Record) -> None:
        self.heard.append(record)
        for metric, attributes, values in record.distributions:
            self.records += [(metric, value, dict(attributes)) for value in values]

    def of(self, metric: Metric) -> list[float]:
        return [value for recorded, value, _ in self.records if recorded is metric]

    def shown(self, metric: Metric) -> list[tuple[float, dict[str, Any]]]:
        return [(value, dict(attributes)) for value, attributes in self.board.points(metric)]

    def nonfinite_of(self, metric: Metric) -> int | None:
        found = [count for (name, _), count in self.nonfinite.items() if name == metric.name]
        return sum(found) if found else None


# -- counting


def test_no_count_before_the_first_step() -> None:
    recorder = Recording()
    assert recorder.count_points() == ()
    recorder.record(RLStep(reward=1.0))
    assert recorder.count_points() == (), "an amendment is no step"
    recorder.record(RLStep(number=7))
    assert [value for value, _ in recorder.count_points()] == [1], "a resumed run starts a new count"


def test_a_number_reported_twice_in_a_row_is_one_step() -> None:
    recorder = Recording()
    recorder.record(RLStep(number=1, duration_s=2.0, reward=0.5, rollout_completion_length=[3]))
    recorder.record(RLStep(number=1, duration_s=2.0, reward=0.75, kl=0.1, rollout_completion_length=[3]))
    assert recorder.steps == 1
    assert recorder.of(names.RL_STEP_DURATION) == [2.0]
    assert recorder.of(names.RL_ROLLOUT_COMPLETION_LENGTH) == [3]
    assert recorder.shown(names.RL_STEP_REWARD) == [(0.75, {})]
    assert recorder.shown(names.RL_STEP_KL) == [(0.1, {})]


def test_a_step_repeated_after_a_restore_counts_again() -> None:
    recorder = Recording()
    for number in (1, 2, 3, 2, 3):
        recorder.record(RLStep(number=number, duration_s=1.0))
    assert recorder.steps == 5
    assert len(recorder.of(names.RL_STEP_DURATION)) == 5


@given(st.lists(st.none() | st.integers(0, 3), max_size=20))
def test_the_count_is_the_number_of_runs_of_equal_numbers(numbers: list[int | None]) -> None:
    recorder = Recording(SFTStep)
    for number in numbers:
        recorder.record(SFTStep(number=number, duration_s=1.0))
    expected = len(list(itertools.groupby(number for number in numbers if number is not None)))
    assert recorder.steps == expected
    assert len(recorder.of(names.SFT_STEP_DURATION)) == expected + numbers.count(None)


# -- what is published


def test_every_figure_of_a_step_is_on_the_board_under_its_metric() -> None:
    recorder, step = Recording(), grpo_step(1)
    recorder.record(step)
    for source in GAUGES[RLStep]:
        given_value = getattr(step, source.attribute)
        assert given_value is not None, source.attribute
        expected = (
            [(given_value, {})]
            if source.by is None
            else [(value, {source.by.name: label}) for label, value in given_value.items()]
        )
        assert recorder.shown(source.metric) == expected, source.attribute


def test_every_rollout_is_recorded_once_a_term() -> None:
    recorder, step = Recording(), grpo_step(1)
    recorder.record(step)
    assert recorder.of(names.RL_STEP_DURATION) == [step.duration_s]
    assert recorder.of(names.RL_ROLLOUT_COMPLETION_LENGTH) == step.rollout_completion_length
    for term in (*TERMS, "total"):
        of_term = [record for record in recorder.records if record[2].get(names.ATTR_RL_TERM.name) == term]
        scores = [value for metric, value, _ in of_term if metric is names.RL_ROLLOUT_REWARD]
        assert sorted(scores) == sorted(step.rollout_reward[term])
        assert len(scores) == ROLLOUTS
        seconds = [value for metric, value, _ in of_term if metric is names.RL_GRADER_DURATION]
        assert seconds == step.grader_duration.get(term, [])


def test_what_a_step_does_not_have_is_absent_and_never_zero() -> None:
    recorder = Recording()
    recorder.record(RLStep(number=1))
    assert [source.metric for source in GAUGES[RLStep] if recorder.shown(source.metric)] == [names.RL_STEP_NUMBER]
    assert recorder.records == []
    recorder.record(RLStep(number=2, timing_s={"gen": None, "reward": 1.0}, rollout_reward={}, reward_term={"a": None}))
    assert recorder.shown(names.RL_STEP_TIMING) == [(1.0, {names.ATTR_RL_STEP_PHASE.name: "reward"})]
    assert recorder.shown(names.RL_STEP_REWARD_TERM) == []


@pytest.mark.parametrize("value", [None, True, "0.5", [], object(), {"a": 1.0}])
def test_what_is_no_number_is_absent(value: Any) -> None:
    recorder = Recording()
    recorder.record(RLStep(number=1, reward=value, kl=0.5))
    assert recorder.shown(names.RL_STEP_REWARD) == []
    assert recorder.shown(names.RL_STEP_KL) == [(0.5, {})]
    assert recorder.nonfinite_of(names.RL_STEP_REWARD) == 0


def test_a_negative_value_is_itself() -> None:
    recorder = Recording()
    recorder.record(RLStep(number=1, reward=-0.5, rollout_reward={"total": [-1.0, -0.0, 0.25]}))
    assert recorder.of(names.RL_ROLLOUT_REWARD) == [-1.0, -0.0, 0.25]
    assert recorder.shown(names.RL_STEP_REWARD) == [(-0.5, {})]


# -- not finite


@pytest.mark.parametrize(
    ("step_type", "watched"),
    [
        (RLStep, {names.RL_STEP_REWARD, names.RL_ROLLOUT_REWARD, names.RL_STEP_LOSS, names.RL_STEP_GRAD_NORM}),
        (SFTStep, {names.SFT_STEP_LOSS, names.SFT_STEP_GRAD_NORM}),
    ],
)
def test_the_watched_ones_are_published_from_zero(step_type: type[Step], watched: set[Metric]) -> None:
    points = Recording(step_type).nonfinite_points()
    assert {dict(attributes)[names.ATTR_TELEMETRY_METRIC.name] for _, attributes in points} == {m.name for m in watched}
    assert {value for value, _ in points} == {0}


@pytest.mark.parametrize("value", [NAN, INF, -INF, 10**400])
def test_a_value_that_is_not_finite_is_counted_and_not_shown(value: Any) -> None:
    recorder = Recording(SFTStep)
    recorder.record(SFTStep(number=1, loss=1.0))
    recorder.record(SFTStep(number=2, loss=value, tokens=5))
    assert recorder.shown(names.SFT_STEP_LOSS) == [], "the last good value must not stand for a broken one"
    assert recorder.shown(names.SFT_STEP_TOKENS) == [(5.0, {})]
    assert recorder.nonfinite_of(names.SFT_STEP_LOSS) == 1
    recorder.record(SFTStep(number=3, loss=2.0, token_accuracy=value))
    assert recorder.shown(names.SFT_STEP_LOSS) == [(2.0, {})]
    assert recorder.nonfinite_of(names.SFT_STEP_TOKEN_ACCURACY) == 1


def test_one_broken_rollout_does_not_hide_the_others() -> None:
    recorder = Recording()
    recorder.record(
        RLStep(number=1, rollout_reward={"a": [NAN, 0.5, INF], "total": [0.5]}, reward_term={"a": NAN, "b": 1})
    )
    assert recorder.of(names.RL_ROLLOUT_REWARD) == [0.5, 0.5]
    assert recorder.nonfinite_of(names.RL_ROLLOUT_REWARD) == 2
    term, metric = names.ATTR_RL_TERM.name, names.ATTR_TELEMETRY_METRIC.name
    assert (2, {metric: names.RL_ROLLOUT_REWARD.name, term: "a"}) in recorder.nonfinite_points()
    assert (0, {metric: names.RL_ROLLOUT_REWARD.name, term: "total"}) in recorder.nonfinite_points()
    assert recorder.shown(names.RL_STEP_REWARD_TERM) == [(1.0, {names.ATTR_RL_TERM.name: "b"})]


FIGURE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
LABELLED = st.none() | st.dictionaries(st.text(max_size=5), FIGURE | st.lists(FIGURE, max_size=3), max_size=3)


@given(figure=FIGURE, labelled=LABELLED, duration=FIGURE)
def test_whatever_a_step_holds_only_finite_numbers_come_out(figure: Any, labelled: Any, duration: Any) -> None:
    recorder = Recording()
    recorder.record(
        RLStep(number=1, reward=figure, reward_term=labelled, duration_s=duration, rollout_reward=labelled, kl=figure)
    )
    shown = [value for source in GAUGES[RLStep] for value, _ in recorder.board.points(source.metric)]
    assert all(type(value) is float and math.isfinite(value) for value in shown)
    assert all(type(value) is float and math.isfinite(value) for _, value, _ in recorder.records)
    assert recorder.steps == 1


def test_the_tables_are_complete() -> None:
    """Every gauge and histogram that a step can hold is in the full step of these tests."""
    step = grpo_step(1)
    missing = [
        s.attribute
        for s in (*GAUGES[RLStep], *DISTRIBUTIONS[RLStep], *COUNTS[RLStep])
        if getattr(step, s.attribute) is None
    ]
    assert missing == []
