"""Rows as steps: through the engines' own tables, and only what a log can truthfully say."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from akka_otel_callbacks.replay import trl_steps, verl_steps
from akka_otel_callbacks.replay.log import Row
from akka_otel_callbacks.replay.timeline import SECOND_NS, timeline
from tests.verl.recorded import RL_RUNS, calls

LOGS = Path(__file__).parents[1] / "fixtures" / "trl"
MTIME = 1_700_000_000 * SECOND_NS


def trl(*values: dict[str, Any]) -> list[Step]:
    rows = [Row(int(row.get("step", at)), dict(row)) for at, row in enumerate(values, 1)]
    return [step for _, step in trl_steps.steps(rows, trl_steps.kind(rows))]


def verl(*rows: tuple[int, dict[str, Any]], config: Any = None) -> list[Any]:
    found = [Row(number, values, config=config) for number, values in rows]
    return [step for _, step in verl_steps.steps(found, verl_steps.kind(found))]


# -- TRL


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_kind_of_every_recorded_training_is_told_by_its_rows(log: Path) -> None:
    recorded = json.loads(log.read_text())
    rows = [Row(row["step"], row) for row in recorded["log_history"]]
    rl = recorded["trainer"] in ("GRPOTrainer", "RLOOTrainer", "OnlineDPOTrainer")
    shown = log.stem in ("grpo_nolog", "evalonly")  # these logs have no row of a step
    assert shown or trl_steps.kind(rows) is (RLStep if rl else SFTStep)
    completed = [row["step"] for row in recorded["log_history"] if "loss" in row]
    assert [row.number for row in rows if trl_steps.completes(row)] == completed


def test_rewards_of_a_preference_are_no_terms() -> None:
    (step,) = trl({"loss": 0.5, "rewards/chosen": 1.0, "rewards/rejected": 0.5, "logps/chosen": -3.0})
    assert isinstance(step, SFTStep)
    assert step.loss == 0.5


def test_terms_whose_weights_are_not_known_are_absent() -> None:
    terms = {"rewards/a/mean": 0.5, "rewards/a/std": 0.1, "rewards/b/mean": 0.25}
    weighted = trl({"loss": 0.0, "reward": 1.0, "reward_std": 0.2, **terms})[0]
    assert weighted.reward_term == {"total": 1.0}
    assert weighted.reward_term_std == {"total": 0.2}
    plain = trl({"loss": 0.0, "reward": 0.75, **terms})[0]
    assert plain.reward_term == {"a": 0.5, "b": 0.25, "total": 0.75}
    some_unscored = trl({"reward": 0.9, **terms}, {"reward": 0.75, **terms})
    assert all(len(step.reward_term) == 3 for step in some_unscored)


def test_tokens_are_those_of_one_step_or_absent() -> None:
    rows = [(1, 100.0), (2, 250.0), (3, None), (4, 600.0), (5, 700.0), (15, 900.0), (16, 50.0), (17, 80.0)]
    found = trl(*({"loss": 1.0, "num_tokens": total, "step": number} for number, total in rows))
    assert [step.tokens for step in found] == [100, 150, None, None, 100, None, None, 30]


def test_a_loss_that_hides_a_nan_is_absent() -> None:
    """transformers replaces a NaN by the mean of the good values; the gradient's norm shows it."""
    nan = float("nan")
    hidden = trl({"loss": 0.5, "grad_norm": nan}, {"loss": 0.25, "grad_norm": 1.0})
    assert [step.loss for step in hidden] == [None, 0.25]
    shown = trl({"loss": nan, "grad_norm": 1.0}, {"loss": 0.25, "grad_norm": 1.0})
    assert str(shown[0].loss) == "nan"


def test_the_row_of_the_end_is_no_step() -> None:
    assert trl({"train_loss": 0.5, "train_runtime": 3.0, "reward": 1.0}) == []


# -- verl


@pytest.mark.parametrize("run", [*RL_RUNS, "sft_torchrun_2"])
def test_recorded_calls_give_what_the_log_alone_can(run: str) -> None:
    """Each call of a real training, without what the live backend sees beside its log."""
    found = verl(*calls(run))
    key = "train/loss" if run.startswith("sft") else "training/global_step"
    logged = [(number, row) for number, row in calls(run) if key in row]
    steps = [step for step in found if step.number is not None]
    assert [step.number for step in steps] == [number for number, _ in logged]
    for step, (_, row) in zip(steps, logged, strict=True):
        if isinstance(step, SFTStep):
            assert (step.loss, step.tokens) == (row["train/loss"], row["train/global_tokens"])
            continue
        assert step.reward == row["critic/score/mean"]
        assert step.policy_loss == row["actor/pg_loss"]
        assert step.tokens == row["perf/total_num_tokens"]
        answered = row.get("num_turns/max", 2) > 2  # by a tool, whose tokens verl counts as the model's own
        assert step.completion_length == (None if answered else row["response_length/mean"])
        assert step.timing_s["step"] == step.duration_s == row["timing_s/step"]
        assert step.completion_clipped_ratio is step.rollouts is step.rollout_reward is None
    assert steps[0].learning_rate is None or run == "v1_separate_async_2", "a step logs the rate of the next one"


def old(release: str) -> dict[str, Any]:
    """Keys of a reinforcement step, by the source of each release."""
    row = {"critic/score/mean": 0.5, "actor/pg_loss": 0.25, "actor/kl_loss": 0.125, "actor/grad_norm": 2.0}
    more = {
        "0.1": {"timing/gen": 2.0, "actor/lr(1e-4)": 0.01, "critic/kl": 0.5, "critic/kl_coeff": 0.001},
        "0.2": {"timing_s/step": 3.0, "actor/lr": 1e-6, "critic/kl": 0.0, "critic/kl_coeff": 0.0},
        "0.4": {"timing_s/step": 3.0, "actor/lr": 1e-6, "training/global_step": 1},
        "0.6": {"timing_s/step": 3.0, "actor/lr": 1e-6, "training/global_step": 1, "response/aborted_ratio": 0.0},
        "0.8": {"timing_s/step": 3.0, "actor/lr": 1e-6, "training/global_step": 1, "actor/perf/mfu": 0.1},
    }
    return row | more[release]


@pytest.mark.parametrize(
    ("release", "loss", "kl", "rates"),
    [
        ("0.1", 0.25, 0.5, [None, 1e-6]),  # its divergence in the loss is that of the last micro-batch
        ("0.2", 0.25, None, [None, 1e-6]),
        ("0.4", 0.25, None, [1e-6, 1e-6]),
        ("0.6", None, None, [1e-6, 1e-6]),  # divided by the micro-batches, of which nobody knows the number
        ("0.8", 0.25, 0.125, [None, 1e-6]),
    ],
)
def test_each_release_s_misleading_keys(release: str, loss: Any, kl: Any, rates: list[Any]) -> None:
    steps = verl((1, old(release)), (2, old(release)))
    assert [step.policy_loss for step in steps] == [loss, loss]
    assert [step.kl for step in steps] == [kl, kl]
    assert [step.learning_rate for step in steps] == pytest.approx(rates)
    assert [step.number for step in steps] == [1, 2]


def test_a_configuration_in_the_log_tells_more() -> None:
    config = {
        "actor_rollout_ref": {"actor": {"loss_agg_mode": "seq-mean-token-sum", "policy_loss": {"loss_mode": "sapo"}}},
        "trainer": {},
        "data": {},
    }
    row = old("0.8") | {"actor/entropy": 1.0, "actor/pg_clipfrac": 0.5}
    (without,), (knowing,) = verl((1, row)), verl((1, row), config=config)
    assert (without.entropy, without.clip_ratio) == (1.0, 0.5)
    assert (knowing.entropy, knowing.clip_ratio, knowing.kl) == (None, None, None)


def test_early_validations() -> None:
    (step,) = verl((0, {"val/test_score/openai/gsm8k": 0.75}))
    assert step.eval_reward == {"openai/gsm8k": 0.75}


# -- times


def test_times_of_the_log_are_kept() -> None:
    rows = [
        (Row(1, {}, 10 * SECOND_NS), RLStep(number=1)),
        (Row(1, {}), RLStep()),
        (Row(2, {}, 25 * SECOND_NS), RLStep(number=2)),
    ]
    found = timeline(rows, MTIME)
    assert found.source == names.ReplayTimes.LOGGED
    assert [timed.time_ns // SECOND_NS for timed in found.timed] == [10, 10, 25]
    assert found.start_ns == 9 * SECOND_NS


def test_times_that_a_log_has_not_end_at_its_files_last_change() -> None:
    steps = [
        (Row(0, {}), RLStep()),
        (Row(1, {}), RLStep(number=1, duration_s=5.0)),
        (Row(1, {}), RLStep()),
        (Row(2, {}, 7), RLStep(number=2, timing_s={"gen": 2.0, "adv": 0.5})),
        (Row(12, {}), RLStep(number=12, duration_s=3.0)),
        (Row(13, {}), RLStep(number=13, duration_s=float("nan"))),
    ]
    found = timeline(steps, MTIME)
    assert found.source == names.ReplayTimes.ASSUMED
    assert [(timed.time_ns - MTIME) / SECOND_NS for timed in found.timed] == [-18.5, -13.5, -13.5, -11, -1, 0]
    assert found.start_ns == MTIME - 18.5 * SECOND_NS


def test_durations_beyond_all_time_do_not_leave_it() -> None:
    steps = [(Row(number, {}), RLStep(number=number, duration_s=1e300)) for number in range(1, 4)]
    assert 0 < timeline(steps, MTIME).start_ns < MTIME


def test_a_step_without_figures_is_one() -> None:
    assert not [field for field in fields(RLStep) if getattr(RLStep(), field.name) is not None]
