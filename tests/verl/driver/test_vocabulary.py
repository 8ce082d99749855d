"""verl's keys: which figure each one is, in which version, whatever else a row holds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.verl.driver.vocabulary import RL_KEYS, SFT_KEYS, Key, phases, rl_step, row_of, sft_step
from akka_otel_callbacks.verl.worker.clip_ratio import CLIPPED_HIGH
from tests.verl.recorded import FIXTURES, RL_RUNS, steps

UNSEARCHABLE = ("timing_s/", "train/lr(", "train/time(")
"""Keys that a search of verl's source for whole keys does not find."""

foreign_keys = (
    st.text() | st.sampled_from([key.key for key in (*RL_KEYS, *SFT_KEYS)]) | st.text().map("timing_s/".__add__)
)
foreign_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.floats().map(np.float64)
    | st.integers(-(2**31), 2**31 - 1).map(np.int32)
    | st.booleans().map(np.bool_)
    | st.lists(st.floats(), max_size=3).map(np.array),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
rows = st.dictionaries(foreign_keys | st.integers() | st.none(), foreign_values)


@pytest.mark.parametrize("run", RL_RUNS)
def test_every_figure_of_a_recorded_step_is_the_value_under_its_key(run: str) -> None:
    for _, row in steps(run):
        step = rl_step(row)
        assert step.duration_s == row["timing_s/step"]
        assert step.reward == row["critic/score/mean"]
        assert step.completion_length == row["response_length/mean"]
        assert step.completion_length_max == row["response_length/max"]
        assert step.completion_length_min == row["response_length/min"]
        assert step.policy_loss == row["actor/pg_loss"]
        assert step.grad_norm == row["actor/grad_norm"]
        assert step.learning_rate == row["actor/lr"]
        assert step.clip_ratio == row["actor/pg_clipfrac"]
        assert step.tokens == row["perf/total_num_tokens"]
        assert step.throughput == row["perf/throughput"]
        assert step.mfu == row["perf/mfu/actor"]
        assert step.entropy == row.get("actor/entropy")
        assert step.kl == row.get("actor/kl_loss")


def test_kl_is_the_one_to_the_reference_model_and_to_no_other() -> None:
    others = {"actor/ppo_kl": 1.0, "rollout_corr/kl": 2.0, "actor/kl_coef": 0.001}
    assert rl_step(others).kl is None
    assert rl_step({**others, "actor/reward_kl_penalty": 0.5}).kl == 0.5
    assert rl_step({**others, "actor/reward_kl_penalty": 0.5, "actor/kl_loss": 0.25}).kl == 0.25


def test_the_raw_reward_is_taken_and_not_the_one_less_a_kl_penalty() -> None:
    assert rl_step({"critic/score/mean": 1.0, "critic/rewards/mean": 0.4}).reward == 1.0


def test_the_policy_loss_is_the_policy_gradient_part() -> None:
    assert rl_step({"actor/loss": 3.0, "actor/pg_loss": 1.0}).policy_loss == 1.0
    assert rl_step({"actor/loss": 3.0}).policy_loss is None


def test_the_entropy_of_the_update_stands_in_where_none_is_recomputed() -> None:
    assert rl_step({"actor/entropy_loss": 2.0}).entropy == 2.0
    assert rl_step({"actor/entropy_loss": 2.0, "actor/entropy": 1.0}).entropy == 1.0


def test_an_mfu_of_zero_is_passed_on_in_reinforcement_and_unknown_in_supervised_training() -> None:
    assert rl_step({"perf/mfu/actor": 0.0}).mfu == 0.0
    assert sft_step({"train/mfu": 0.0}).mfu is None
    assert sft_step({"train/mfu": 0.25}).mfu == 0.25


def test_a_key_that_is_not_usable_in_this_run_fills_nothing() -> None:
    row = {"actor/pg_clipfrac": 0.5, CLIPPED_HIGH: 0.25, "actor/entropy": 1.0, "actor/entropy_loss": 2.0}
    step = rl_step(row, {"actor/pg_clipfrac", "actor/entropy"})
    assert (step.clip_ratio, step.clip_ratio_high, step.clip_ratio_low, step.entropy) == (None, None, None, 2.0)


def test_the_dual_clip_bound_is_no_side_of_the_clip_ratio() -> None:
    step = rl_step({"actor/pg_clipfrac": 0.5, "actor/pg_clipfrac_lower": 0.1})
    assert (step.clip_ratio, step.clip_ratio_high, step.clip_ratio_low) == (0.5, None, None)


def test_the_lower_side_is_what_the_upper_one_leaves_of_the_whole() -> None:
    step = rl_step({"actor/pg_clipfrac": 0.5, CLIPPED_HIGH: 0.375})
    assert (step.clip_ratio_high, step.clip_ratio_low) == (0.375, 0.125)
    rounded = rl_step({"actor/pg_clipfrac": 0.1, CLIPPED_HIGH: 0.1 + 1e-9})
    assert rounded.clip_ratio_low == 0.0


def test_the_sides_that_a_run_measured_by_itself_agree_with_the_difference() -> None:
    """The recorded run counted both sides in its workers."""
    for _, row in steps("v1_clip_sides_2"):
        step = rl_step({**row, CLIPPED_HIGH: row["actor/lab_clip_high"]})
        assert step.clip_ratio_low == pytest.approx(row["actor/lab_clip_low"], abs=1e-7)


@pytest.mark.parametrize("run", RL_RUNS)
def test_phases_are_verls_own_and_all_of_them_seconds(run: str) -> None:
    for _, row in steps(run):
        found = phases(row)
        assert found["step"] == row["timing_s/step"]
        assert found["update_actor"] == row["timing_s/update_actor"]
        assert not any("/" in name or name.startswith("agent_loop") for name in found)
        assert not {"num_preempted", "prompt_length", "response_length"} & found.keys()
        assert all(seconds <= 60 for seconds in found.values())


def test_a_phase_that_fully_async_writes_with_the_prefix_twice_has_its_own_name() -> None:
    named = [phases(row) for _, row in steps("fully_async_2") if "timing_s/timing_s/param_sync" in row]
    assert named
    assert all("param_sync" in found for found in named)


def test_rewards_of_a_validation_by_data_source() -> None:
    row = {
        "val-core/openai/gsm8k/acc/mean@2": 0.5,
        "val-aux/openai/gsm8k/reward/mean@2": 0.75,
        "val-aux/openai/gsm8k/reward/std@2": 0.1,
        "val-core/math/reward/mean@1": -1.0,
        "val-core/math/reward/best@1/mean": 2.0,
        "val-aux/num_turns/mean": 3.0,
        "val-core/mixed/reward/mean@1": 1.0,
        "val-core/mixed/reward/mean@2": 2.0,
        7: 1.0,
    }
    assert rl_step(row_of(row)).eval_reward == {"openai/gsm8k": 0.75, "math": -1.0}
    assert rl_step(row_of({"training/global_step": 1})).eval_reward is None


def test_supervised_rows() -> None:
    row = {"train/loss": 6.0, "train/grad_norm": 3.5, "train/lr": 1e-3, "train/global_tokens": 284, "train/mfu": 0.005}
    step = sft_step(row)
    assert (step.loss, step.grad_norm, step.learning_rate, step.tokens, step.mfu) == (6.0, 3.5, 1e-3, 284.0, 0.005)
    assert sft_step({"val/loss": 5.5}).eval_loss == 5.5


def test_supervised_rows_of_the_trainer_up_to_0_6() -> None:
    step = sft_step({"train/loss": 6.0, "train/lr(1e-3)": 0.02, "train/time(s)": 1.5})
    assert step.learning_rate == pytest.approx(2e-5)
    assert step.duration_s == 1.5


def test_the_table_agrees_with_the_keys_in_the_source_of_each_version() -> None:
    """Later versions put some keys together from a prefix, such as `actor/`, which the search found in their place."""
    by_version = json.loads((FIXTURES / "keys_by_version.json").read_text())
    for key in (*RL_KEYS, *SFT_KEYS):
        if key.key.startswith(UNSEARCHABLE):
            continue
        for version, known in by_version.items():
            if key.key in known:
                assert _says(key, version), f"{key.key} is in {version}"
            elif _says(key, version):
                assert f"{key.key.split('/')[0]}/" in known, f"{key.key} is not in {version}"


def _says(key: Key, version: str) -> bool:
    minor = tuple(map(int, version.removeprefix("v").split(".")[:2]))
    since = tuple(map(int, key.since.split(".")))
    until = tuple(map(int, key.until.split("."))) if key.until else (math.inf,)
    return since <= minor <= until


@given(rows)
def test_a_row_is_the_numbers_that_are_logged(logged: dict[Any, Any]) -> None:
    row = row_of(logged)
    assert set(row) == {key for key, value in logged.items() if isinstance(key, str) and number(value) is not None}
    assert all(type(value) is float for value in row.values())


def test_figures_of_any_library_are_numbers_and_nothing_else_is() -> None:
    logged = {"float": 0.5, "int": 2, "numpy": np.float32(0.25), "count": np.int64(3), "array": np.array([1.5])}
    others = {"flag": True, "none": None, "text": "0.5", "table": [[1.0]], "figures": {"a": 1.0}, 7: 1.0}
    assert row_of({**logged, **others}) == {"float": 0.5, "int": 2.0, "numpy": 0.25, "count": 3.0, "array": 1.5}


@given(rows)
def test_any_row_gives_numbers_under_known_fields_and_never_an_error(logged: dict[Any, Any]) -> None:
    read = row_of(logged)
    for step in (rl_step(read), sft_step(read)):
        for name in (key.field for key in (RL_KEYS if isinstance(step, RLStep) else SFT_KEYS)):
            assert getattr(step, name) is None or isinstance(getattr(step, name), float)
    assert all(isinstance(seconds, float) for seconds in phases(read).values())


@given(rows, st.sampled_from(RL_KEYS), st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_under_a_key_is_what_its_field_gets(row: dict[Any, object], key: Key, value: float) -> None:
    first = next(other for other in RL_KEYS if other.field == key.field)
    assert getattr(rl_step(row_of({**row, first.key: value})), key.field) == value * first.scale


@given(st.dictionaries(st.text().filter(lambda key: not key.startswith("timing_s/")), st.floats()))
def test_a_row_without_known_keys_fills_nothing(row: dict[str, float]) -> None:
    known = {key.key for key in (*RL_KEYS, *SFT_KEYS)} | {CLIPPED_HIGH}
    unknown = {key: value for key, value in row.items() if key not in known}
    assert rl_step(unknown) == RLStep(timing_s={})
    assert sft_step(unknown) == SFTStep()
