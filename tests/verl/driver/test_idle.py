"""Idle shares: only where trainer and rollout servers have devices of their own."""

from __future__ import annotations

import pathlib

import pytest

from akka_otel_callbacks.verl.driver.idle import ONE_STEP_OFF_KEY, idle
from tests.verl.recorded import calls, steps

SEPARATE = {"trainer": {"v1": {"trainer_mode": "separate_async"}}}


@pytest.mark.parametrize("run", ["v1_grpo_kl_val_2", "v0_grpo_kl_val_2", "v0_tools_1", "v1_lora_1"])
def test_a_trainer_that_takes_turns_with_its_rollouts_is_never_idle(run: str) -> None:
    for _, row in steps(run):
        assert idle(row, {"trainer": {"v1": {"trainer_mode": "sync"}}}) == {}


def test_separate_async_waits_within_gen() -> None:
    for _, row in steps("v1_separate_async_2"):
        assert idle(row, SEPARATE) == {"trainer": pytest.approx(row["timing_s/gen"] / row["timing_s/step"])}


def test_one_step_off_knows_the_trainers_share_alone() -> None:
    """20 s of generation beside an update of 50 s: the coroutine's timer ends when the update lets go of the loop."""
    row = {"timing_s/step": 60.0, "timing_s/gen": 6.0, "timing_s/generate_async": 60.0}
    assert idle(row, {}) == {"trainer": 0.1}


def test_a_wait_longer_than_the_step_is_all_of_it() -> None:
    assert idle({"timing_s/step": 10.0, "timing_s/gen": 10.5}, SEPARATE) == {"trainer": 1.0}


def test_verls_one_step_off_trainer_still_times_its_generation_under_that_key() -> None:
    folder = pathlib.Path(pytest.importorskip("verl").__file__).parent / "experimental"
    source = (folder / "one_step_off_policy" / "ray_trainer.py").read_text()
    assert f'marked_timer("{ONE_STEP_OFF_KEY.removeprefix("timing_s/")}"' in source


def test_fully_async_logs_both_shares() -> None:
    rollouter = next(row for number, row in calls("fully_async_2") if number == 2)
    step = dict(steps("fully_async_2"))[2]
    assert idle({**rollouter, **step}, {}) == {
        "trainer": pytest.approx(step["timing_s/gen"] / step["timing_s/step"]),
        "rollout": rollouter["fully_async/rollouter/idle_ratio"],
    }


def test_a_step_without_a_duration_has_no_share() -> None:
    assert idle({"timing_s/step": 0.0, "timing_s/gen": 1.0}, SEPARATE) == {}
