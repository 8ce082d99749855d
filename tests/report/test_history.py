"""Courses over the steps, held against what the training reported."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from pathlib import Path

import pytest

from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import GAUGES, RLStep, SFTStep
from akka_otel_callbacks.report import heat
from akka_otel_callbacks.report.page import page
from tests.common.reports import Report
from tests.report.recordings import GPU, history, record, recording, rl_step, sft_step

STEPS = 25


@pytest.mark.parametrize("kind", [RLStep, SFTStep])
def test_every_gauge_has_the_values_of_its_steps(tmp_path: Path, kind: type) -> None:
    make = rl_step if kind is RLStep else sft_step
    run = history(record(tmp_path, STEPS, make, every=7))
    assert run.steps == [*range(1, STEPS + 1)]
    reported = [make(number, STEPS) for number in range(1, STEPS + 1)]
    for field, metric, by in GAUGES[kind]:
        values = [getattr(step, field) for step in reported]
        if values[0] is None:
            assert run.courses(metric) == []
        elif by is None:
            (course,) = run.courses(metric)
            assert [*course.x] == run.steps, metric.name
            assert [*course.y] == values
        else:
            for course in run.courses(metric):
                assert [*course.y] == [value[course.of(by)] for value in values]


def test_a_step_without_the_figure_stays_without(tmp_path: Path) -> None:
    run = history(record(tmp_path, STEPS, figures=lambda n: {"kl": None} if n % 3 == 0 else {}))
    assert [*run.course(names.RL_STEP_KL).x] == [n for n in range(1, STEPS + 1) if n % 3]


def test_an_evaluation_is_there_once_and_at_its_step(tmp_path: Path) -> None:
    with recording(tmp_path, SFTStep) as made:
        for number in range(1, 31):
            made.step(sft_step(number, 30))
            if number in (10, 20):
                made.step(SFTStep(eval_loss=3 - number / 10), seconds=0.3)
            if number % 4 == 0:
                made.export()
    course = history(tmp_path).course(names.SFT_EVAL_LOSS)
    assert ([*course.x], [*course.y]) == ([10, 20], [2, 1])


def test_of_steps_that_a_later_attempt_did_anew_the_later_ones_count(tmp_path: Path) -> None:
    for attempt, steps, reward, begin in ((1, range(1, 21), 0.25, 0), (2, range(16, 31), 0.75, 500)):
        with recording(tmp_path, attempt=attempt, after_s=begin) as made:
            for number in steps:
                made.step(rl_step(number, 30, reward=reward))
                made.export()
    run = history(tmp_path)
    course = run.course(names.RL_STEP_REWARD)
    assert [*course.x] == [*range(1, 31)]
    assert [*course.y] == [0.25] * 15 + [0.75] * 15
    assert dict(run.clock)[15] == pytest.approx(15, abs=0.1)
    assert dict(run.clock)[16] == pytest.approx(501, abs=0.1)
    columns = [c for totals in run.totals(names.RL_ROLLOUT_REWARD) for c in heat.columns(totals, 100)]
    assert [(c.since, c.until) for c in columns] == [(n - 1, n) for n in range(1, 31)]


def test_a_loop_that_starts_over_within_an_attempt_counts_from_there(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        for number in (1, 2, 3, 1, 2):
            made.step(rl_step(number, 5, reward=len(made.steps.recorder.board.figures()) * 0.0 + number / 10))
        made.export()
    course = history(tmp_path).course(names.RL_STEP_REWARD)
    assert [*zip(course.x, course.y, strict=True)] == [(1, 0.1), (2, 0.2)]


def test_a_gpus_figures_lie_between_the_steps(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        for number in (1, 2):
            made.step(rl_step(number, 2), seconds=10)
            made.observed = {names.HW_POWER: [(100.0 * number, GPU)]}
            made.export(after_s=5)
        made.step(rl_step(3, 3), seconds=5)
        made.export()
    course = history(tmp_path).course(names.HW_POWER)
    assert [*course.x] == pytest.approx([1 + 5 / 15, 2.5, 3], abs=0.01)
    assert [*course.y] == [100, 200, 200]


def test_the_columns_of_a_distribution_have_the_rollouts_of_their_steps(tmp_path: Path) -> None:
    (totals,) = history(record(tmp_path, STEPS, every=4)).totals(names.RL_ROLLOUT_REWARD)
    bounds = names.RL_ROLLOUT_REWARD.buckets
    for most in (100, 3, 1):
        columns = heat.columns(totals, most)
        assert len(columns) <= most + 1
        assert (columns[0].since, columns[-1].until) == (0, STEPS)
        for column in columns:
            rewards = [
                reward
                for number in range(int(column.since) + 1, int(column.until) + 1)
                for reward in rl_step(number, STEPS).rollout_reward["total"]
            ]
            expected = Counter(bisect_left(bounds, reward) for reward in rewards)
            assert [bucket.count for bucket in column.buckets] == [expected[n] for n in range(len(bounds) + 1)]


def test_what_comes_after_the_last_step_lies_on_the_axis(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        for number in (1, 2):
            made.step(rl_step(number, 2), seconds=10)
        made.observed = {names.HW_POWER: [(100.0, GPU)]}
        made.export(after_s=4)
    run = history(tmp_path)
    assert [*run.course(names.HW_POWER).x] == [pytest.approx(2.4)]
    assert run.latest == (pytest.approx(2.4), pytest.approx(24))
    assert page([run], 0)["runs"][0]["ends"] == [1, pytest.approx(2.4)]


def test_what_the_last_export_tells_lies_on_the_axis(tmp_path: Path) -> None:
    """It is made when the job's span has ended."""
    telemetry = Telemetry.start(identify({}, engine={}), RLStep, environ={"AKKA_OTEL_DIR": str(tmp_path)})
    for number in (1, 2):
        time.sleep(0.1)
        telemetry.capture(Report(rl_step(number, 2, grader_failures={("accuracy", "timeout"): 1})), step=True)
    telemetry.close()
    (made,) = page([history(tmp_path)], 0)["runs"]
    (failures,) = history(tmp_path).courses(names.RL_GRADER_FAILURES)
    assert failures.y[-1] == 2
    assert failures.x[-1] == pytest.approx(made["ends"][1], abs=0.001)


def test_a_run_that_made_no_step(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        made.observed = {names.HW_POWER: [(100.0, GPU)]}
        made.export(after_s=10)
        made.export(after_s=10)
    run = history(tmp_path)
    assert run.steps == []
    assert all(-1 <= x <= 0 for x in run.course(names.HW_POWER).x)
