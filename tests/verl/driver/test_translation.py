"""From log calls to steps: several calls a step, figures that a key does not truthfully give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.recorder import Record, Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.driver.translation import LogCall, RLTranslation, SFTTranslation, translation_for
from tests.verl.driver.test_vocabulary import rows
from tests.verl.recorded import RL_RUNS, calls, replay, steps

RL_CONFIG: dict[str, Any] = {"actor_rollout_ref": {"rollout": {"response_length": 24}}}
SFT_CONFIG: dict[str, Any] = {"trainer": {"nnodes": 1, "n_gpus_per_node": 2}}


class Recorded:
    """A recorder and what it put on histograms."""

    def __init__(self, step_type: type[RLStep] | type[SFTStep]) -> None:
        self.histograms: dict[Metric, list[float]] = {}
        self.recorder = Recorder(step_type, self._keep)

    def _keep(self, record: Record) -> None:
        for metric, _, values in record.distributions:
            self.histograms.setdefault(metric, []).extend(values)

    def gauge(self, metric: Metric, **attributes: Any) -> float | None:
        wanted = set(attributes.values())
        found = [value for value, labels in self.recorder.board.points(metric) if wanted <= set(labels.values())]
        assert len(found) <= 1
        return found[0] if found else None


@pytest.mark.parametrize("run", RL_RUNS)
def test_a_recorded_run_counts_its_steps_and_shows_the_last(run: str) -> None:
    recorded = Recorded(RLStep)
    replay(run, RLTranslation(RL_CONFIG, (0, 9, 1)), recorded.recorder)
    completed = steps(run)
    _, last = completed[-1]
    assert recorded.recorder.steps == len(completed) == 3
    assert recorded.histograms[names.RL_STEP_DURATION] == [row["timing_s/step"] for _, row in completed]
    assert recorded.gauge(names.RL_STEP_REWARD) == last["critic/score/mean"]
    assert recorded.gauge(names.RL_STEP_TIMING, phase="update_actor") == last["timing_s/update_actor"]


def test_a_validation_before_the_training_is_no_step() -> None:
    recorded = Recorded(RLStep)
    number, row = calls("v1_grpo_kl_val_2")[0]
    LogCall(RLTranslation(RL_CONFIG, (0, 9)), row, number).deliver(recorded.recorder)
    assert (number, recorded.recorder.steps) == (0, 0)
    assert recorded.recorder.count_points() == ()


def test_fully_async_shows_both_idle_shares_of_one_step_though_they_come_in_two_calls() -> None:
    recorded = Recorded(RLStep)
    translation = RLTranslation(RL_CONFIG, (0, 9, 1))
    for number, row in calls("fully_async_2")[:4]:
        LogCall(translation, row, number).deliver(recorded.recorder)
    (_, _), (_, first), (_, _) = calls("fully_async_2")[:3]
    # The fourth call is the servers' part of step 2, which is not complete: step 1 is still shown, unmixed.
    assert recorded.gauge(names.RL_IDLE, role="rollout") == first["fully_async/rollouter/idle_ratio"]
    assert recorded.gauge(names.RL_IDLE, role="trainer") == pytest.approx(0.9400101674873246)


def test_a_validation_between_the_parts_of_a_step_loses_neither() -> None:
    """In fully_async the servers' row comes first, then the validation's, then the step's, all under one number."""
    translation = RLTranslation(RL_CONFIG, (0, 9, 1))
    early: list[dict[str, Any]] = [{"fully_async/rollouter/idle_ratio": 0.5}, {"val-core/gsm8k/acc/mean@1": 0.25}]
    assert [translation.step_of(LogCall(translation, row, 3)) for row in early] == [None, None]
    step = translation.step_of(
        LogCall(translation, {"training/global_step": 9, "fully_async/trainer/idle_ratio": 0.25}, 3)
    )
    assert step is not None
    assert step.idle == {"rollout": 0.5, "trainer": 0.25}
    after = translation.step_of(LogCall(translation, {"training/global_step": 9}, 3))
    assert after is not None
    assert after.idle == {}


def test_a_part_of_a_step_that_never_came_is_not_taken_for_another() -> None:
    translation = RLTranslation(RL_CONFIG, (0, 9))
    assert translation.step_of(LogCall(translation, {"fully_async/rollouter/idle_ratio": 0.5}, 1)) is None
    step = translation.step_of(LogCall(translation, {"training/global_step": 2}, 2))
    assert step is not None
    assert step.idle == {}


@pytest.mark.parametrize(
    ("version", "config", "expected"),
    [
        ((0, 9, 1), {}, [None, 0.1, 0.2]),
        ((0, 8, 0), {}, [None, 0.1, 0.2]),
        ((0, 7, 1), {}, [0.1, 0.2, 0.3]),
        ((0, 7, 1), {"trainer": {"use_legacy_worker_impl": "disable"}}, [None, 0.1, 0.2]),
    ],
)
def test_the_learning_rate_is_the_one_that_the_step_used(
    version: tuple[int, ...], config: dict[str, Any], expected: list[float | None]
) -> None:
    """From 0.8 the log of a step has the rate of the next one: `lr_scheduler.step()` comes before `get_last_lr()`."""
    translation = RLTranslation({**RL_CONFIG, **config}, version)
    logged = [{"training/global_step": n, "actor/lr": n / 10} for n in (1, 2, 3)]
    found = [translation.step_of(LogCall(translation, row, n)) for n, row in enumerate(logged, 1)]
    assert [step.learning_rate for step in found if step] == pytest.approx(expected)


@pytest.mark.parametrize(("updates", "expected"), [(1, [None, 0.1, 0.2]), (2, [None] * 3), (4, [None] * 3)])
def test_a_mean_of_several_updates_rates_is_no_learning_rate(updates: int, expected: list[float | None]) -> None:
    config = {**RL_CONFIG, "async_training": {"trigger_parameter_sync_step": updates}}
    translation = RLTranslation(config, (0, 9, 1))
    logged = [{"training/global_step": n * updates, "actor/lr": n / 10} for n in (1, 2, 3)]
    found = [translation.step_of(LogCall(translation, row, n)) for n, row in enumerate(logged, 1)]
    assert [step.learning_rate for step in found if step] == expected


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({"v1": {"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 2}}}, [None] * 3),
        ({"v1": {"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 1}}}, [None, 0.1, 0.2]),
        ({"v1": {"trainer_mode": "sync", "separate_async": {"parameter_sync_step": 2}}}, [None, 0.1, 0.2]),
        (
            {"use_v1": False, "v1": {"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 2}}},
            [None, 0.1, 0.2],
        ),
    ],
)
def test_the_rate_behind_the_last_of_several_updates_is_no_learning_rate(
    trainer: dict[str, Any], expected: list[float | None]
) -> None:
    """`separate_async` logs the rate behind a step's last update, which is the one of the next step's first."""
    translation = RLTranslation({**RL_CONFIG, "trainer": trainer}, (0, 9, 1))
    logged = [{"training/global_step": n, "actor/lr": n / 10} for n in (1, 2, 3)]
    found = [translation.step_of(LogCall(translation, row, n)) for n, row in enumerate(logged, 1)]
    assert [step.learning_rate for step in found if step] == expected


def seen(**means: list[tuple[float, float]]) -> Rollouts:
    parts = {name: list(found) for name, found in means.items()}
    return Rollouts(scores=np.zeros(1), lengths=np.ones(1), own_lengths=np.ones(1, dtype=int), **parts)


def test_the_entropy_that_was_seen_of_the_batch_is_the_figure_whatever_the_log_says() -> None:
    translation = RLTranslation({"actor_rollout_ref": {"actor": {"loss_agg_mode": "seq-mean-token-sum"}}}, (0, 9))
    row = {"training/global_step": 1, "actor/entropy": 18.75, "actor/entropy_per_token": 1.75}
    step = translation.step_of(LogCall(translation, row, 1, [seen(entropy=[(1.0, 30)]), seen(entropy=[(2.0, 10)])]))
    assert step is not None
    assert step.entropy == 1.25
    bypassed = translation.step_of(LogCall(translation, {**row, "training/global_step": 2}, 2, [seen()]))
    assert bypassed is not None
    assert bypassed.entropy == 1.75
    del row["actor/entropy_per_token"]
    without = translation.step_of(LogCall(translation, {**row, "training/global_step": 3}, 3, [seen()]))
    assert without is not None
    assert without.entropy is None


def test_what_a_trainer_of_a_users_own_aggregates_beside_the_entropy_is_not_taken_for_one() -> None:
    two = seen(entropy=[(1.0, 30), (7.0, 30)])
    row = {"training/global_step": 1, "actor/entropy": 1.5}
    mode = {"v1": {"trainer_mode": "separate_async", "separate_async": {"parameter_sync_step": 2}}}
    for config, expected in ((RL_CONFIG, 1.5), ({**RL_CONFIG, "trainer": mode}, 4.0)):
        translation = RLTranslation(config, (0, 9))
        step = translation.step_of(LogCall(translation, row, 1, [two]))
        assert step is not None
        assert step.entropy == expected


def test_the_divergence_of_the_loss_comes_before_the_one_of_a_penalty() -> None:
    translation = RLTranslation(RL_CONFIG, (0, 9))
    penalty = {"training/global_step": 1, "actor/reward_kl_penalty": 0.5}
    rollouts = [seen(kl=[(0.25, 40)])]
    for row, expected in (({**penalty}, 0.25), ({**penalty, "actor/kl_loss": 0.125}, 0.125)):
        step = translation.step_of(LogCall(translation, row, 1, rollouts))
        assert step is not None
        assert step.kl == expected
    unseen = translation.step_of(LogCall(translation, penalty, 1, [seen()]))
    assert unseen is not None
    assert unseen.kl == 0.5


@pytest.mark.parametrize("version", [(0, 7, 0), (0, 7, 1)])
def test_zero_seven_has_no_divergence_without_a_penalty_and_no_sums(version: tuple[int, ...]) -> None:
    actor = {"ppo_epochs": 1, "ppo_mini_batch_size": 8}
    row = {"training/global_step": 1, "actor/kl_loss": 0.0, "actor/pg_loss": 0.5}
    cases: list[tuple[dict[str, Any], tuple[float | None, float | None]]] = [
        ({}, (0.5, None)),
        ({"use_kl_loss": True}, (0.5, 0.0)),
        ({"use_kl_loss": True, "ppo_epochs": 2}, (None, None)),
        ({"use_kl_loss": True, "ppo_mini_batch_size": 4}, (None, None)),
    ]
    for changed, expected in cases:
        config = {"actor_rollout_ref": {"actor": {**actor, **changed}}, "data": {"train_batch_size": 8}}
        translation = RLTranslation(config, version)
        step = translation.step_of(LogCall(translation, row, 1))
        assert step is not None
        assert (step.policy_loss, step.kl) == expected


def test_a_step_without_an_update_of_the_policy_has_no_learning_rate() -> None:
    translation = RLTranslation(RL_CONFIG, (0, 9))
    logged: list[dict[str, Any]] = [{"actor/lr": 0.1}, {}, {"actor/lr": 0.2}]
    found = [translation.step_of(LogCall(translation, {**row, "training/global_step": 1}, 1)) for row in logged]
    assert [step.learning_rate for step in found if step] == [None, None, 0.1]


def test_rollouts_take_the_place_of_the_logs_own_figures() -> None:
    """In v1 `response_length/clip_ratio` is the share of the longest: 1/16 here, where nothing was truncated."""
    translation = RLTranslation({"actor_rollout_ref": {"rollout": {"response_length": 200}}}, (0, 9))
    row = {"training/global_step": 1, "response_length/clip_ratio": 1 / 16, "response_length/mean": 60.0}
    rollouts = Rollouts(scores=np.array([1.0, 0.0]), lengths=np.array([104.0, 10.0]), own_lengths=np.array([104, 10]))
    step = translation.step_of(LogCall(translation, row, 1, [rollouts]))
    assert step is not None
    assert (step.completion_clipped_ratio, step.completion_length) == (0.0, 57.0)


def test_without_rollouts_the_truncated_share_is_absent() -> None:
    translation = RLTranslation(RL_CONFIG, (0, 9))
    row = {"training/global_step": 1, "response_length/clip_ratio": 0.5, "response_length/mean": 60.0}
    step = translation.step_of(LogCall(translation, row, 1))
    assert step is not None
    assert (step.completion_clipped_ratio, step.completion_length) == (None, 60.0)


def test_padding_rows_are_left_out_of_tokens_and_throughput() -> None:
    translation = RLTranslation(RL_CONFIG, (0, 9))
    row = {"training/global_step": 1, "perf/total_num_tokens": 1000, "perf/throughput": 50.0}
    rollouts = Rollouts(scores=np.ones(2), lengths=np.ones(2), own_lengths=np.ones(2, dtype=int), tokens=800)
    step = translation.step_of(LogCall(translation, row, 1, [rollouts]))
    assert step is not None
    assert (step.tokens, step.throughput) == (800, 40.0)


def test_a_clip_ratio_that_is_none_is_not_shown() -> None:
    config = {"actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "sapo"}}}}
    translation = RLTranslation(config, (0, 9))
    step = translation.step_of(LogCall(translation, {"training/global_step": 1, "actor/pg_clipfrac": 0.0}, 1))
    assert step is not None
    assert step.clip_ratio is None


def test_a_supervised_run() -> None:
    recorded = Recorded(SFTStep)
    replay("sft_torchrun_2", SFTTranslation(SFT_CONFIG), recorded.recorder)
    assert recorded.recorder.steps == 3
    assert recorded.gauge(names.SFT_STEP_LOSS) == 5.765625
    assert recorded.gauge(names.SFT_STEP_TOKENS) == 280
    assert recorded.gauge(names.SFT_STEP_LEARNING_RATE) == 0.001
    assert recorded.gauge(names.SFT_EVAL_LOSS) is None  # this run's validation loss was NaN, twice
    assert recorded.recorder.nonfinite[names.SFT_EVAL_LOSS.name, None] == 2
    assert names.SFT_STEP_DURATION not in recorded.histograms


def test_a_supervised_update_with_its_time() -> None:
    translation = SFTTranslation(SFT_CONFIG)
    row = {"train/loss": 1.0, "train/global_tokens": 300}
    step = translation.step_of(LogCall(translation, row, 7, update_s=1.5))
    assert (step.number, step.duration_s, step.throughput) == (7, 1.5, 100.0)
    assert step.timing_s == {"step": 1.5}


def test_an_evaluation_amends_the_step_that_it_follows() -> None:
    recorded = Recorded(SFTStep)
    translation = SFTTranslation(SFT_CONFIG)
    for row in ({"train/loss": 1.0}, {"val/loss": 2.0}):
        LogCall(translation, row, 1).deliver(recorded.recorder)
    assert recorded.recorder.steps == 1
    assert (recorded.gauge(names.SFT_STEP_LOSS), recorded.gauge(names.SFT_EVAL_LOSS)) == (1.0, 2.0)


def test_the_configuration_tells_the_kind_of_training() -> None:
    assert translation_for(RL_CONFIG, "0.9.1").step_type is RLStep
    assert translation_for(SFT_CONFIG, "0.9.1").step_type is SFTStep
    assert translation_for(None, "").step_type is SFTStep


@pytest.mark.parametrize(("version", "logs_next"), [("0.9.1", True), ("0.7.0.dev", False), ("main", True), ("", True)])
def test_an_unknown_version_counts_as_the_newest(version: str, logs_next: bool) -> None:
    translation = translation_for(RL_CONFIG, version)
    assert isinstance(translation, RLTranslation)
    step = translation.step_of(LogCall(translation, {"training/global_step": 1, "actor/lr": 0.1}, 1))
    assert step is not None
    assert (step.learning_rate is None) == logs_next


@given(st.lists(st.tuples(rows, st.integers(0, 3), st.booleans()), max_size=6))
def test_any_calls_leave_only_finite_points(logged: list[tuple[dict[Any, Any], int, bool]]) -> None:
    for translation, key in (
        (RLTranslation(RL_CONFIG, (0, 9)), "training/global_step"),
        (SFTTranslation(None), "train/loss"),
    ):
        recorded = Recorded(translation.step_type)
        for row, number, completes in logged:
            LogCall(translation, {**row, **({key: 1.0} if completes else {})}, number).deliver(recorded.recorder)
        assert recorded.recorder.steps <= len(logged)
        for metric in names.JOB_METRICS:
            assert all(math.isfinite(value) for value, _ in recorded.recorder.board.points(metric))
        assert all(math.isfinite(value) for values in recorded.histograms.values() for value in values)
