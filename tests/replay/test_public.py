"""Published logs of other people's runs, against what their rows say, read here in another way."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from tests.replay.replayed import FIXTURES, replayed

EARLY = FIXTURES / "grpo_early_names.trainer_state.json.gz"
ONE_ROW = FIXTURES / "grpo_one_row_old_and_new_keys.trainer_state.json"
SIX_SETS = FIXTURES / "sft_six_eval_sets.trainer_state.json"
CONSOLE = FIXTURES / "verl_oldest_console.log"
ALIKE = ("loss", "grad_norm", "learning_rate", "kl", "reward", "frac_reward_zero_std")
"""Keys of TRL whose figure is called so, too."""


def figures(row: dict[str, Any]) -> dict[tuple[str, tuple[Any, ...]], float]:
    """What a row of GRPO's log says in the shared names."""
    found = {(f"rl.step.{key}", ()): row[key] for key in ALIKE if key in row}
    found["job.epoch", ()] = row["epoch"]
    found["rl.step.number", ()] = row["step"]
    found["rl.step.reward.std", ()] = row["reward_std"]
    found["rl.step.completion.length", ()] = row.get("completions/mean_length", row["completion_length"])
    for key, value in row.items():
        if match := re.fullmatch(r"rewards/(\w+?)(/mean|/std)?", key):
            of = "rl.step.reward.term.std" if match[2] == "/std" else "rl.step.reward.term"
            found[of, (match[1],)] = value
    found["rl.step.reward.term", ("total",)] = row["reward"]
    found["rl.step.reward.term.std", ("total",)] = row["reward_std"]
    return found


def test_early_names() -> None:
    state = json.loads(gzip.decompress(EARLY.read_bytes()))
    run = replayed(EARLY)
    steps = run.of_steps()
    assert [*steps] == [row["step"] for row in state["log_history"]] == [*range(1, 251)]
    for row in state["log_history"]:
        found = {key: value for key, value in steps[row["step"]].items() if key[0] != "job.steps.planned"}
        assert found == figures(row)
    assert run.series("rl.step.count") == [*range(1, 251)]
    assert {*run.series("job.steps.planned")} == {250}


def test_one_row_for_twelve_steps() -> None:
    (row,) = json.loads(ONE_ROW.read_text())["log_history"]
    run = replayed(ONE_ROW)
    steps = run.of_steps()
    expected = figures(row) | {
        ("rl.step.completion.length.max", ()): 256.0,
        ("rl.step.completion.length.min", ()): 204.2,
        ("rl.step.completion.length.terminated", ()): 95.15,
        ("rl.step.completion.clipped_ratio", ()): 0.9125,
    }
    assert {key: value for key, value in steps[10].items() if key[0] != "job.steps.planned"} == expected
    assert {key for key, _ in steps[12]} == {"rl.step.number", "job.steps.planned"}
    assert run.series("rl.step.count") == [10, 12]


def test_six_evaluation_sets() -> None:
    rows = json.loads(SIX_SETS.read_text())["log_history"]
    training = [row for row in rows if "loss" in row]
    run = replayed(SIX_SETS)
    assert [*run.of_steps()] == [row["step"] for row in training]
    assert run.series("sft.step.loss") == [row["loss"] for row in training]
    assert run.series("sft.step.grad_norm") == [row["grad_norm"] for row in training]
    for name in (f"g{number}" for number in range(6)):
        key = f"eval_{name}_loss"
        assert run.series("sft.eval.loss", name) == [row[key] for row in rows if key in row]
    assert run.series("sft.step.timing", "eval") == [
        next(value for key, value in row.items() if key.endswith("_runtime")) for row in rows if "loss" not in row
    ]
    assert max(run.series("sft.step.count")) == 12030
    assert run.names == {
        *(f"sft.step.{name}" for name in "loss grad_norm learning_rate number count timing".split()),
        *("sft.eval.loss", "job.epoch", "job.steps.planned", "telemetry.dropped", "telemetry.nonfinite"),
    }


def test_the_oldest_console() -> None:
    text = re.sub(r"\x1b\[\d+m", "", CONSOLE.read_text())
    rows = {
        int(number): dict(pair.rsplit(":", 1) for pair in rest.split(" - "))
        for number, rest in re.findall(r"^\(main_task pid=\d+\) step:(\d+) - (.*)$", text, re.MULTILINE)
    }
    run = replayed(CONSOLE)
    steps = run.of_steps()
    assert [*steps] == [*rows] == [*range(9)]
    names = {
        "rl.step.reward": "critic/score/mean",
        "rl.step.policy_loss": "actor/pg_loss",
        "rl.step.clip_ratio": "actor/pg_clipfrac",
        "rl.step.grad_norm": "actor/grad_norm",
        "rl.step.entropy": "actor/entropy_loss",
        "rl.step.kl": "critic/kl",
        "rl.step.completion.length": "response_length/mean",
        "rl.step.completion.length.max": "response_length/max",
        "rl.step.completion.length.min": "response_length/min",
    }
    for number, row in rows.items():
        expected = {(name, ()): float(row[key]) for name, key in names.items()}
        phases = {key.removeprefix("timing/"): float(value) for key, value in row.items() if key.startswith("timing/")}
        expected |= {("rl.step.timing", (phase,)): seconds for phase, seconds in phases.items()}
        expected["rl.step.number", ()] = number
        if number:  # this verl logs the rate of the step to come
            expected["rl.step.learning_rate", ()] = pytest.approx(float(rows[number - 1]["actor/lr(1e-4)"]) * 1e-4)
        assert steps[number] == expected
    assert run.series("rl.step.count") == [*range(1, 10)]
