"""Each fault is named, and a healthy run has none."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.report.panels import RL, SFT
from akka_otel_callbacks.report.rules import RULES
from tests.common.reports import Report
from tests.report.faults import FAULTS, with_xid
from tests.report.recordings import GPU, history, record, recording, rl_step, sft_step


def found(folder: Path) -> dict[str, list[str]]:
    run = history(folder)
    return {rule.name: lines for rule in RULES if (lines := list(rule.found(run)))}


@pytest.mark.parametrize("make", [rl_step, sft_step])
@pytest.mark.parametrize("steps", [1, 2, 7, 60])
def test_a_healthy_run_has_no_verdict(tmp_path: Path, make: Callable, steps: int) -> None:
    assert found(record(tmp_path, steps, make)) == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_no_other(tmp_path: Path, fault: str) -> None:
    assert [*found(FAULTS[fault](tmp_path))] == [fault]


@pytest.mark.parametrize(
    ("fault", "numbers"),
    [
        ("Not finite", "rl.step.loss was NaN or infinite 28 ×, first at step 33"),
        ("Grader failing", "accuracy: 160 of 480 calls, cause timeout"),
        ("Input-bound", "57% of a step's time lately went into waiting for its input"),
        ("Stalled", "no step for 15 min 0 s, after steps of 1 s; its process was alive meanwhile"),
        ("XID", "GPU …0000a1: XID 79: GPU has fallen off the bus"),
        ("Tools failing", "70% of the calls lately"),
    ],
)
def test_the_numbers_are_those_that_were_recorded(tmp_path: Path, fault: str, numbers: str) -> None:
    assert found(FAULTS[fault](tmp_path))[fault] == [numbers]


@pytest.mark.parametrize(
    ("cause", "latest", "said"),
    [
        (names.GpuXidCause.HARDWARE, 45, "GPU …0000a1: XID, usually the hardware or the driver"),
        (
            names.GpuXidCause.APPLICATION,
            45,
            "GPU …0000a1: XID 45: clean-up after an earlier error or the end of a program",
        ),
        (names.GpuXidCause.UNKNOWN, 999, "GPU …0000a1: XID 999"),
        (names.GpuXidCause.HARDWARE, 79, "GPU …0000a1: XID 79: GPU has fallen off the bus"),
    ],
)
def test_an_xid_is_told_by_its_cause_where_the_latest_code_is_another_one(
    tmp_path: Path, cause: str, latest: int, said: str
) -> None:
    assert found(with_xid(tmp_path, cause, latest))["XID"] == [said]


def failing_graders(count: int, failures: dict[str, int]) -> dict[str, object]:
    """A step's calls of one term."""
    by_cause = {("accuracy", cause): number for cause, number in failures.items()}
    return {"grader_duration": {"accuracy": [0.002] * count}, "grader_failures": by_cause}


def test_failures_of_a_grader_count_together_whatever_their_cause(tmp_path: Path) -> None:
    """0.6 % and 0.8 % of the calls."""
    causes = {"timeout": 3, "unreadable": 4}
    folder = record(tmp_path, 5, figures=lambda n: failing_graders(100, causes if n == 3 else {}))
    assert found(folder) == {"Grader failing": ["accuracy: 7 of 500 calls, cause unreadable, timeout"]}


def test_failures_of_a_grader_are_of_the_calls_of_all_attempts(tmp_path: Path) -> None:
    for attempt, numbers in ((1, range(1, 21)), (2, range(21, 23))):
        with recording(tmp_path, attempt=attempt, after_s=attempt * 100.0) as made:
            for number in numbers:
                made.step(rl_step(number, 60, **failing_graders(100, {"timeout": 10} if number == 5 else {})))
                made.export()
    assert found(tmp_path) == {}, "10 of 2,200 are no hundredth, though the second attempt had only 200"


@pytest.mark.parametrize(("paused", "verdicts"), [(1, []), (0, ["Stalled"])])
def test_a_run_that_evaluates_is_not_stalled(tmp_path: Path, paused: int, verdicts: list[str]) -> None:
    """For 15 minutes, and then for one minute more it is between the end of the evaluation and the next step."""
    with recording(tmp_path) as made:
        for number in range(1, 21):
            made.step(rl_step(number, 60))
        made.observed = {names.JOB_STEPS_PAUSED: [(paused, {names.ATTR_JOB_PAUSE_CAUSE.name: "evaluating"})]}
        made.export()
        made.export(after_s=900)
        made.observed = {names.JOB_STEPS_PAUSED: [(0, {names.ATTR_JOB_PAUSE_CAUSE.name: "evaluating"})]}
        made.export(after_s=60)
    assert [*found(tmp_path)] == verdicts


@pytest.mark.parametrize(("planned", "verdicts"), [(60, {"Gone": ["at step 20 of 60"]}), (20, {})])
def test_a_process_that_is_gone_before_its_last_step(tmp_path: Path, planned: int, verdicts: dict) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    who = {names.ATTR_PROCESS_PID.name: str(ended.pid), names.ATTR_HOST_NAME.name: socket.gethostname()}
    with recording(tmp_path, **who) as made:
        made.observed = {names.JOB_STEPS_PLANNED: [(planned, {})]}
        for number in range(1, 21):
            made.step(rl_step(number, 60))
        made.export()
    assert found(tmp_path) == verdicts


@pytest.mark.parametrize(
    ("losses", "verdicts"),
    [
        ([2.0, 1.5, 1.0, 1.2, 1.3, 1.4], {"Held-out loss rising": ["from 1 at step 30 to 1.4"]}),
        ([2.0, 1.5, 1.0, 1.2, 1.3, 1.09], {}),
        ([1.0, 1.2, 1.2], {}),
        ([-2.0, -1.0, -1.0, -1.0], {}),  # such as a reward's negative, of which there is no share
    ],
)
def test_a_held_out_loss_that_rises(tmp_path: Path, losses: list[float], verdicts: dict) -> None:
    with recording(tmp_path, SFTStep) as made:
        for number in range(1, 10 * len(losses) + 1):
            made.step(sft_step(number, 60))
            if number % 10 == 0:
                made.step(SFTStep(eval_loss=losses[number // 10 - 1]), seconds=0)
                made.export()
    assert found(tmp_path) == verdicts


def test_every_rule_leads_to_a_panel() -> None:
    panels = {panel.name for panel in (*RL, *SFT)} | {"who"}
    assert {rule.panel for rule in RULES} <= panels
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_no_verdict_of_a_figure_that_is_good_again(tmp_path: Path) -> None:
    """Rules look at the newest steps."""
    assert found(record(tmp_path, 60, figures=lambda n: {"frac_reward_zero_std": 0.9 if n < 30 else 0.1})) == {}


@pytest.mark.parametrize("seed", range(6))
def test_no_trend_is_seen_in_noise(tmp_path: Path, seed: int) -> None:
    """A step's truncated share depends on its prompts."""
    chance = random.Random(seed)
    assert found(record(tmp_path, 30, figures=lambda n: {"completion_clipped_ratio": chance.uniform(0.1, 0.7)})) == {}


def test_one_rollout_with_a_penalty_does_not_put_all_others_at_the_ceiling(tmp_path: Path) -> None:
    def penalised(number: int) -> dict[str, object]:
        return {"reward": 0.3, "reward_max": 1.0, "reward_min": -100.0 if number == 7 else 0.0}

    assert found(record(tmp_path, 60, figures=penalised)) == {}


def test_one_rollout_with_an_absurd_reward_does_not_hide_the_ceiling(tmp_path: Path) -> None:
    def odd(number: int) -> dict[str, object]:
        return {"reward": min(number / 30, 1.0), "reward_max": 1000.0 if number == 7 else 1.0, "reward_min": 0.0}

    message = "a mean of 1 lately; hardly a step had a rollout with more than 1"
    assert found(record(tmp_path, 60, figures=odd)) == {"Reward at its ceiling": [message]}


@pytest.mark.parametrize("steps", [20, 160])
def test_no_ceiling_where_two_steps_had_a_rollout_with_more(tmp_path: Path, steps: int) -> None:
    def seldom(number: int) -> dict[str, object]:
        return {"reward": 0.5, "reward_max": 1.0 if number in (12, 14) else 0.5, "reward_min": 0.0}

    assert found(record(tmp_path, steps, figures=seldom)) == {}


def test_of_figures_that_are_nan_from_the_beginning_the_first_step_is_named(tmp_path: Path) -> None:
    """Also of one term where the other one is a number."""
    nan = float("nan")
    folder = record(
        tmp_path, 20, figures=lambda n: {"loss": nan, "reward_term": {"a": 0.5, "b": nan if n >= 14 else 0.5}}
    )
    assert found(folder)["Not finite"] == [
        "rl.step.reward.term b was NaN or infinite 7 ×, first at step 14",
        "rl.step.loss was NaN or infinite 20 ×, first at step 1",
    ]


@pytest.mark.parametrize(("reward", "verdicts"), [(0.9, []), (0.97, ["Reward at its ceiling"])])
def test_a_ceiling_is_a_share_of_the_way_from_the_lowest_reward(
    tmp_path: Path, reward: float, verdicts: list[str]
) -> None:
    """Of rewards from -1 to 1, 98 % of the way is 0.96."""

    def rewards(number: int) -> dict[str, object]:
        return {"reward": reward, "reward_min": -1.0 if number < 30 else reward, "reward_max": 1.0}

    assert [*found(record(tmp_path, 60, figures=rewards))] == verdicts


def test_rewards_that_are_all_the_same_have_no_ceiling(tmp_path: Path) -> None:
    assert (
        found(record(tmp_path, 60, figures=lambda n: dict.fromkeys(("reward", "reward_min", "reward_max"), 0.5))) == {}
    )


@pytest.mark.parametrize(
    ("share", "verdicts"), [(0.4, {}), (0.6, {"Generation-bound": ["the trainer waited for 60% of a step lately"]})]
)
def test_a_role_that_waits(tmp_path: Path, share: float, verdicts: dict[str, list[str]]) -> None:
    idle = {names.RlRole.TRAINER: share, names.RlRole.ROLLOUT: 0.1}
    assert found(record(tmp_path, 60, figures=lambda n: {"idle": idle})) == verdicts


@pytest.mark.parametrize(
    ("pending", "verdicts"),
    [
        ([0, 1], {"Memory repair pending": ["GPU …0000a1: a row or page waits for a reset of the GPU"]}),
        ([1, 0], {}),
    ],
)
def test_a_repair_that_waits_until_it_is_done(
    tmp_path: Path, pending: list[int], verdicts: dict[str, list[str]]
) -> None:
    with recording(tmp_path) as made:
        for number in range(1, 21):
            made.step(rl_step(number, 60))
            made.observed = {names.GPU_MEMORY_REPAIR_PENDING: [(pending[number > 10], GPU)]}
            made.export()
    assert found(tmp_path) == verdicts


def test_a_training_that_an_exception_ended(tmp_path: Path) -> None:
    telemetry = Telemetry.start(identify({}, engine={}), RLStep, environ={"AKKA_OTEL_DIR": str(tmp_path)})
    telemetry.capture(Report(RLStep(number=1)), step=True)
    telemetry.close(ValueError("what a user's data says"))
    assert found(tmp_path) == {"Failed": ["failed with ValueError"]}


def test_steps_that_an_export_had_no_room_for(tmp_path: Path) -> None:
    """It has points of every second one."""
    assert found(record(tmp_path, 300, every=300)) == {"Steps without points": ["149 steps, reason thinned"]}
