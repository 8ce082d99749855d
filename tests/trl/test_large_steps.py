"""Quick steps of many rollouts, against a collector at the default interval: every step arrives, as itself."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from transformers import TrainerCallback

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.vocabulary import names
from tests.support import tiny
from tests.support.otlp_sink import OtlpSink
from tests.support.points import Point
from tests.trl import trainings
from tests.trl.runs import exported_run

STEPS, ROLLOUTS, TERMS = 40, 256, 8
PENALTY = TERMS - 1
"""The last term takes away: every share is below zero."""


def share(term: int, step: int, row: int) -> float:
    """What a term gives a rollout: another mean at every step, so that each step's reward is its own."""
    value = (row * (term + 3)) % 11 / 20 + step / 1000
    return -value if term == PENALTY else value


def rewards() -> dict[trainings.Score, float]:
    def function(term: int) -> trainings.Score:
        steps = itertools.count(1)

        def score(completions: Sequence[str], **_: Any) -> list[float]:
            step = next(steps)
            return [share(term, step, row) for row in range(len(completions))]

        score.__name__ = f"term_{term}"
        return score

    return {function(term): 1.0 for term in range(TERMS)}


class Ends(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        self.at_ns: list[int] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.at_ns.append(time.time_ns())


class Large(NamedTuple):
    sink: OtlpSink
    ends_ns: list[int]
    said: list[str]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Large:
    model = tiny.save(tmp_path_factory.mktemp("smallest"), layers=1, hidden=8)
    ends, said = Ends(), []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener = Listener(logging.WARNING)
    logger.addHandler(listener)
    try:
        run = exported_run(
            lambda callbacks: trainings.online(
                "GRPO",
                model,
                [*callbacks, ends],
                rewards=rewards(),
                trainer={"train_dataset": tiny.prompts(ROLLOUTS // 8)},
                max_steps=STEPS,
                per_device_train_batch_size=ROLLOUTS,
                gradient_accumulation_steps=1,
                num_generations=8,
                max_completion_length=1,
            ),
            at_each_event=False,
        )
    finally:
        logger.removeHandler(listener)
    return Large(run.sink, ends.at_ns, said)


def own_points(series: Sequence[Point]) -> list[Point]:
    """Without the current value, which an export repeats at its own time."""
    return [point for _, run in itertools.groupby(series, key=lambda point: point.value) for point in [next(run)]]


def test_each_of_many_quick_steps_has_its_own_reward(large: Large) -> None:
    points = own_points(large.sink.series(names.RL_STEP_REWARD))
    expected = [
        math.fsum(share(term, step, row) for term in range(TERMS) for row in range(ROLLOUTS)) / ROLLOUTS
        for step in range(1, STEPS + 1)
    ]
    assert [point.value for point in points] == pytest.approx(expected, abs=1e-5)


def test_each_step_s_figures_are_at_the_step_s_own_time(large: Large) -> None:
    for metric in (names.RL_STEP_REWARD, names.RL_STEP_LEARNING_RATE):
        points = own_points(large.sink.series(metric))
        assert len(points) == STEPS
        begins = [0, *large.ends_ns[:-1]]
        for begin, point, end in zip(begins, points, large.ends_ns, strict=True):
            assert begin < point.time_ns <= end + 10**9
        assert all(one.time_ns < other.time_ns for one, other in itertools.pairwise(points))


def test_every_term_of_every_step_has_its_own_mean(large: Large) -> None:
    for term in range(TERMS):
        points = own_points(large.sink.series(names.RL_STEP_REWARD_TERM, {names.ATTR_RL_TERM: f"term_{term}"}))
        means = [
            math.fsum(share(term, step, row) for row in range(ROLLOUTS)) / ROLLOUTS for step in range(1, STEPS + 1)
        ]
        assert [point.value for point in points] == pytest.approx(means, abs=1e-5)


def test_every_rollout_is_counted(large: Large) -> None:
    sink = large.sink
    for term in (*(f"term_{term}" for term in range(TERMS)), names.RlTerm.TOTAL):
        counted = sink.latest(names.RL_ROLLOUT_REWARD, {names.ATTR_RL_TERM: term}).histogram
        assert counted.count == sum(counted.counts) == STEPS * ROLLOUTS, term
    assert sink.latest(names.RL_ROLLOUT_COMPLETION_LENGTH).histogram.count == STEPS * ROLLOUTS
    assert sink.latest(names.RL_STEP_COUNT).value == STEPS


def test_negative_shares_are_counted_with_their_minimum_and_without_a_sum(large: Large) -> None:
    every = [share(PENALTY, step, row) for step in range(1, STEPS + 1) for row in range(ROLLOUTS)]
    term = {names.ATTR_RL_TERM: f"term_{PENALTY}"}
    counted = large.sink.latest(names.RL_ROLLOUT_REWARD, term).histogram
    assert counted.min == pytest.approx(min(every))
    assert counted.sum is None
    assert counted.counts[0] == len(every)
    negative = large.sink.series(names.RL_ROLLOUT_REWARD_NEGATIVE)
    assert {point.attributes[names.ATTR_RL_TERM.name] for point in negative} == {f"term_{PENALTY}"}
    assert negative[-1].value == sum(value < 0 for value in every)


def test_nothing_was_dropped_and_nothing_is_complained_of(large: Large) -> None:
    # A machine that is busy with other things may need longer than the end of a run may take; what is sent after it, as
    # the spans, finds no collector.
    late = (" within ", "/v1/traces")
    assert [line for line in large.said if not any(mark in line for mark in late)] == []
    dropped = [point.value for point in large.sink.metrics() if point.name.endswith("telemetry.dropped")]
    assert set(dropped) <= {0}
