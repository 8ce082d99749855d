"""The translation of log keys: real logs of every TRL version, and whatever else may stand in a log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.trl.loop import TranslatedStep
from akka_otel_callbacks.trl.vocabulary import (
    eval_loss,
    eval_runtime_s,
    is_evaluation,
    is_summary,
    rl_step,
    sft_step,
    update_step,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "trl"
RL = {
    "loss": "loss",
    "reward": "reward",
    "reward_std": "reward_std",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "entropy": "entropy",
    "kl": "kl",
    "frac_reward_zero_std": "frac_reward_zero_std",
    "completion_length": "completions/mean_length",
    "completion_length_max": "completions/max_length",
    "completion_length_min": "completions/min_length",
    "completion_clipped_ratio": "completions/clipped_ratio",
    "clip_ratio": "clip_ratio/region_mean",
    "clip_ratio_high": "clip_ratio/high_mean",
    "clip_ratio_low": "clip_ratio/low_mean",
    "tool_calls": "tools/call_frequency",
}
SFT = {
    "loss": "loss",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "token_accuracy": "mean_token_accuracy",
}
Row = Mapping[str, Any]


def log(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / f"{name}.json").read_text())  # type: ignore[no-any-return]


def training_rows(name: str) -> list[Row]:
    """The rows of a training's steps, told apart by a rule of the test's own."""
    return [row for row in log(name)["log_history"] if "loss" in row]


def logs_of(*trainers: str) -> list[str]:
    return sorted(path.stem for path in FIXTURES.glob("*.json") if log(path.stem)["trainer"] in trainers)


def given_fields(step: RLStep | SFTStep) -> dict[str, Any]:
    return {field.name: value for field in fields(step) if (value := getattr(step, field.name)) not in (None, {})}


def finite(value: Any) -> bool:
    return value is not None and math.isfinite(value)


# -- real logs


@pytest.mark.parametrize("name", logs_of("GRPOTrainer", "RLOOTrainer"))
def test_rows_of_online_trainers(name: str) -> None:
    rows = training_rows(name) or log(name)["log_history"]
    for row in rows:
        early = "completions/mean_length" not in row and "completion_length" in row
        keys = {**RL, "completion_length": "completion_length"} if early else RL
        found = given_fields(rl_step(row))
        for field, key in keys.items():
            assert found.pop(field, None) == pytest.approx(row.get(key), nan_ok=True), field
        check_terms(found, row)
        ended = row.get("completions/mean_terminated_length")
        assert found.pop("completion_length_terminated", None) == (ended or None)
        if row.get("tools/call_frequency"):
            assert found.pop("tool_failure_ratio") == row["tools/failure_frequency"]
        assert not found, "nothing is made up"


def check_terms(found: dict[str, Any], row: Row) -> None:
    for field, of_total, suffix in (("reward_term", "reward", "/mean"), ("reward_term_std", "reward_std", "/std")):
        logged = {
            key.removeprefix("rewards/").removesuffix(suffix): value
            for key, value in row.items()
            if key.startswith("rewards/") and value is not None and key.endswith(suffix)
        }
        if suffix == "/mean":  # up to 0.16
            logged |= {key[8:]: row[key] for key in row if key.startswith("rewards/") and key.count("/") == 1}
        if row.get(of_total) is not None:
            logged["total"] = row[of_total]
        assert found.pop(field, {}) == pytest.approx(logged, nan_ok=True)


@pytest.mark.parametrize("name", logs_of("SFTTrainer"))
def test_rows_of_sft(name: str) -> None:
    for row in training_rows(name):
        found = given_fields(sft_step(row))
        assert found == {field: row[key] for field, key in SFT.items() if key in row}
        assert not is_evaluation(row)
        assert not is_summary(row)


def test_every_version_gives_the_same_figures() -> None:
    grpo = ["0.20.0_grpo", "0.24.0_grpo", "0.27.2_grpo", "1.0.0_grpo", "grpo_beta"]
    rloo = ["0.27.2_rloo", "1.0.0_rloo", "attach_rloo"]
    figures = {name: set(given_fields(rl_step(training_rows(name)[0]))) for name in grpo + rloo}
    figures = {name: found - {"completion_length_terminated"} for name, found in figures.items()}  # where any ended
    wanted = set(RL) - {"tool_calls"} | {"reward_term", "reward_term_std"}
    assert figures == dict.fromkeys(grpo + rloo, wanted)
    sft = ["0.20.0_sft", "0.24.0_sft", "0.27.2_sft", "1.0.0_sft", "sft_pad"]
    assert {name: set(given_fields(sft_step(training_rows(name)[0]))) for name in sft} == {
        name: set(SFT) for name in sft
    }


@pytest.mark.parametrize("name", [path.stem for path in sorted(FIXTURES.glob("*.json"))])
def test_rows_of_evaluations_and_of_the_end_are_told(name: str) -> None:
    for row in log(name)["log_history"]:
        assert is_evaluation(row) == any(key.startswith("eval_") for key in row)
        assert is_summary(row) == ("train_samples_per_second" in row)


def test_a_step_that_reuses_rollouts_has_no_reward() -> None:
    reused = [row for row in training_rows("grpo_iter") if "reward" not in row]
    assert reused
    for row in reused:
        found = given_fields(rl_step(row))
        assert found
        assert not [field for field in found if "reward" in field or "completion" in field]


def test_of_an_old_and_a_new_key_the_new_one_counts() -> None:
    (row,) = training_rows("public_grpo_one_row_old_and_new_keys")
    assert (row["completion_length"], row["completions/mean_length"]) == (256.0, 249.7)
    for ordered in (row, dict(reversed([*row.items()]))):
        assert rl_step(ordered).completion_length == 249.7


def test_an_evaluation_with_a_named_set() -> None:
    rows = log("public_sft_six_eval_sets")["log_history"]
    evaluations = [row for row in rows if "loss" not in row]
    assert len(evaluations) > 20
    for row in evaluations:
        (name,) = {key.split("_")[1] for key in row if key.startswith("eval_")}
        assert eval_loss(row) == row[f"eval_{name}_loss"]
        assert eval_runtime_s(row) == row[f"eval_{name}_runtime"]


def test_evaluations_leave_the_training_alone() -> None:
    recorder = Recorder(SFTStep, lambda *_: None)
    training: dict[str, float] = {}
    for row in log("public_sft_six_eval_sets")["log_history"]:
        if is_evaluation(row):
            TranslatedStep(SFTStep(eval_loss=eval_loss(row))).deliver(recorder)
        else:
            step = sft_step(row)
            step.number = row["step"]
            recorder.record(step)
            training = {field: row[key] for field, key in SFT.items() if key in row} | {"number": step.number}
        shown = {
            metric.name.rsplit("step.", 1)[1]: points for metric, points in board(recorder) if "step." in metric.name
        }
        assert {name: value for name, ((value, _),) in shown.items()} == training


def board(recorder: Recorder) -> Iterator[tuple[Any, Any]]:
    from akka_otel_callbacks.common.vocabulary.step import GAUGES

    for source in GAUGES[SFTStep]:
        if points := recorder.board.points(source.metric):
            yield source.metric, points


@pytest.mark.parametrize("name", ["grpo_onlynone", "grpo_none"])
def test_functions_that_score_nothing_have_no_term(name: str) -> None:
    for row in training_rows(name):
        terms = rl_step(row).reward_term or {}
        assert set(terms) == {
            key[8:-5] for key, value in row.items() if key.endswith("/mean") and value is not None
        } | ({"total"} if row["reward"] is not None else set())


# -- several values of one step


def test_values_of_a_step_are_averaged_but_for_the_extremes() -> None:
    step = rl_step(
        {
            "entropy": [1.0, 2.0, 6.0],
            "completions/max_length": [5.0, 9.0],
            "completions/min_length": [5.0, 2.0],
            "completions/mean_length": [5.0, 4.0],
            "reward": [],
            "kl": [None, "x", True],
        }
    )
    assert (step.entropy, step.completion_length_max, step.completion_length_min) == (3.0, 9.0, 2.0)
    assert step.completion_length == 4.5
    assert (step.reward, step.kl) == (None, None)


def test_terminated_lengths_count_by_how_many_there_were() -> None:
    """Of 8 completions each, 2, 0 and 6 ended."""
    step = rl_step(
        {"completions/mean_terminated_length": [10.0, 0.0, 2.0], "completions/clipped_ratio": [0.75, 1.0, 0.25]}
    )
    assert step.completion_length_terminated == pytest.approx((2 * 10 + 6 * 2) / 8)


def test_failed_calls_count_by_how_many_there_were() -> None:
    """4 calls of which 1 failed, no call, 1 call that failed, of 4 completions each."""
    step = rl_step({"tools/call_frequency": [1.0, 0.0, 0.25], "tools/failure_frequency": [0.25, 0.0, 1.0]})
    assert step.tool_failure_ratio == pytest.approx(2 / 5)


def test_without_calls_there_is_no_share_of_failed_ones() -> None:
    step = rl_step({"tools/call_frequency": 0.0, "tools/failure_frequency": 0.0})
    assert (step.tool_calls, step.tool_failure_ratio) == (0.0, None)


def test_terms_are_weighted_shares() -> None:
    step = rl_step(
        {"rewards/a/mean": 0.5, "rewards/b/mean": 2.0, "rewards/b/std": 3.0, "reward": 1.0}, {"b": -2.0, "c": 9.0}
    )
    assert step.reward_term == {"a": 0.5, "b": -4.0, "total": 1.0}
    assert step.reward_term_std == {"b": 6.0}


# -- whatever else may stand there

KNOWN_KEYS = [
    *RL.values(),
    *SFT.values(),
    "completions/mean_terminated_length",
    "tools/failure_frequency",
    "cispo_clip_ratio",
    "policy_loss",
    "completion_length",
    "rewards/",
    "rewards//mean",
    "rewards/mean",
    "rewards/f/mean",
    "rewards/f/std",
    "eval_loss",
    "eval_runtime",
    "eval_a_loss",
    "num_tokens",
]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.floats(width=32).map(np.float32),
    st.integers(-5, 5).map(np.int64),
    st.floats().map(torch.tensor),
    st.just(torch.zeros(2)),
    st.just(np.zeros(3)),
    st.just(torch.zeros(1, device="meta")),
    st.just(object()),
    st.just({"a": 1}),
)
values = st.one_of(scalars, st.lists(scalars, max_size=4), st.lists(scalars, max_size=3).map(tuple))
rows = st.dictionaries(
    st.one_of(
        st.sampled_from(KNOWN_KEYS), st.text(max_size=8), st.text(max_size=8).map(lambda text: f"rewards/{text}/mean")
    ),
    values,
    max_size=8,
)


@given(rows, st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3))
def test_only_numbers_come_out_of_whatever_goes_in(row: Row, weights: Mapping[str, float]) -> None:
    for step in (rl_step(row, weights), sft_step(row)):
        for value in given_fields(step).values():
            for number in value.values() if isinstance(value, dict) else [value]:
                assert type(number) is float
        recorder = Recorder(type(step), lambda *_: None)
        recorder.record(step)
        assert all(math.isfinite(value) for points in recorder.board._points.values() for value, _ in points)
    for of in (eval_loss, eval_runtime_s):
        assert of(row) is None or type(of(row)) is float
    assert is_summary(row) in (True, False)
    assert is_evaluation(row) in (True, False)


@given(rows)
def test_what_is_not_in_a_row_is_not_in_its_figures(row: Row) -> None:
    found = given_fields(rl_step({key: value for key, value in row.items() if key not in RL.values()}))
    assert not set(found) & (set(RL) - {"clip_ratio", "clip_ratio_high", "completion_length"})


@pytest.mark.parametrize("prefix", ["eval", "eval_near", "test", "eval_nll"])
def test_an_evaluations_own_figures_are_told_from_the_users_metrics(prefix: str) -> None:
    metrics = {
        f"{prefix}_nll_runtime": 77.0,
        f"{prefix}_nll_loss": 78.0,
        f"{prefix}_a_samples_per_second": 79.0,
        f"{prefix}_loss": 1.5,
        f"{prefix}_runtime": 2.5,
        f"{prefix}_samples_per_second": 3.5,
        "eval_entropy": 4.5,
        "epoch": 1.0,
    }
    assert (eval_loss(metrics), eval_runtime_s(metrics)) == (1.5, 2.5)


def test_the_mean_of_a_step_is_weighted_by_what_its_micro_batches_count() -> None:
    values = {"entropy": [1.0, 4.0], "kl": [1.0], "clip_ratio/region_mean": [0.5, 0.0], "grad_norm": 2.0}
    step = update_step(values, {"tokens": [30, 10], "ratios": [4, 4]})
    assert (step.entropy, step.kl, step.clip_ratio, step.grad_norm) == (1.75, 1.0, 0.25, 2.0)
    assert update_step({"entropy": [1.0, 0.0]}, {"tokens": [30, 0]}).entropy == 1.0
    assert update_step({"entropy": [0.0, 0.0]}, {"tokens": [0, 0]}).entropy is None
    assert update_step({"entropy": [1.0, math.nan]}, {"tokens": [30, 0]}).entropy == 1.0
    assert update_step(values, {"tokens": None}).entropy == 2.5
    assert sft_step({"mean_token_accuracy": [0.5, 0.0]}, [1, 3]).token_accuracy == 0.125
