"""The logs that real trainings leave, replayed, against what the callback published while they ran."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.replay.replayed import Replayed, replayed, short
from tests.trl import trainings
from tests.trl.runs import Run, exported_run

STEPS, EVERY = 4, 2
ROUNDED = 5e-5
"""transformers rounds the loss that it logs."""
ONLY_AFTER_IT = {("job.steps.planned", ()), ("sft.step.timing", ("eval",))}
"""Of the whole run, and of an evaluation, which has a time of its own in a replay."""
WRITES_EVENTS = importlib.util.find_spec("tensorboard") is not None
SETTINGS = {
    "max_steps": STEPS,
    "gradient_accumulation_steps": 1,  # the mean over micro-batches in a log is not weighted
    "eval_strategy": "steps",
    "eval_steps": EVERY,
    "save_strategy": "steps",
    "save_steps": EVERY,
    "report_to": ["tensorboard"] if WRITES_EVENTS else [],
}


def trained(kind: str, model: str) -> tuple[Run, Path]:
    """A training, and the folder that it wrote to."""
    output = Path(trainings.folder())
    settings = {**SETTINGS, "output_dir": str(output)}
    rewards = {trainings.letters: 1.0, trainings.penalty: 1.0}

    def make(callbacks: list[Any]) -> Any:
        if kind == "sft":
            return trainings.sft(model, callbacks, **settings)
        return trainings.online("GRPO", model, callbacks, rewards=rewards, beta=0.04, **settings)

    return exported_run(make), output


@pytest.fixture(scope="module", params=["grpo", "sft"])
def training(request: pytest.FixtureRequest, tiny_model: str) -> tuple[Run, Path]:
    return trained(request.param, tiny_model)


def live(run: Run, step: int) -> dict[tuple[str, tuple[Any, ...]], float]:
    points = run.points(step, "log")
    return {(short(p.name), (*p.attributes.values(),)): p.value for p in points if p.kind == "gauge"}


def check(found: Replayed, run: Run, digits: float) -> set[str]:
    """Every figure of every step against the live one; returns their names."""
    steps = found.of_steps()
    assert [*steps] == run.steps == [*range(1, STEPS + 1)]
    for step, figures in steps.items():
        published = live(run, step)
        for series, value in figures.items():
            if series not in ONLY_AFTER_IT:
                tolerance = {"abs": ROUNDED} if series[0].endswith(".loss") else {"rel": digits, "abs": 1e-9}
                assert value == pytest.approx(published[series], **tolerance), (step, series)
    assert found.series(next(name for name in found.names if name.endswith("step.count")))[-1] == STEPS
    return {name for figures in steps.values() for name, _ in figures}


def check_evaluations(found: Replayed, run: Run) -> None:
    name = next(name for name in found.names if name in ("rl.eval.reward", "sft.eval.loss"))
    expected = [
        next(p.value for p in run.points(step, "evaluate") if short(p.name) == name)
        for step in range(EVERY, STEPS + 1, EVERY)
    ]
    assert found.series(name) == pytest.approx(expected, rel=1e-6)


ALWAYS = {"loss", "grad_norm", "learning_rate", "number", "tokens"}
OF_RL = {"reward", "reward.std", "reward.term", "completion.length", "completion.clipped_ratio", "kl", "entropy"}


def names_of(run: Run) -> set[str]:
    if any(name.startswith("rl.") for name in map(short, run.figures(1))):
        return {f"rl.step.{name}" for name in ALWAYS | OF_RL}
    return {f"sft.step.{name}" for name in {*ALWAYS, "token_accuracy"}}


def test_the_folder_of_a_training(training: tuple[Run, Path]) -> None:
    run, output = training
    found = replayed(output)
    assert check(found, run, 1e-6) > names_of(run)
    check_evaluations(found, run)
    assert found.resource["replay.format"] == "trainer_state"
    assert found.resource["replay.times"] == ("logged" if WRITES_EVENTS else "assumed")


def test_a_checkpoint_in_the_middle(training: tuple[Run, Path]) -> None:
    _, output = training
    found = replayed(output / f"checkpoint-{EVERY}")
    assert [*found.of_steps()] == [*range(1, EVERY + 1)]


@pytest.mark.skipif(not WRITES_EVENTS, reason="TensorBoard is not installed in this environment")
def test_event_files(training: tuple[Run, Path]) -> None:
    run, output = training
    (file,) = output.glob("**/*tfevents*")
    found = replayed(file)
    assert check(found, run, 1e-6) > names_of(run)
    check_evaluations(found, run)
    assert found.resource["replay.times"] == "logged"
    ended = {p.time_ns for p in run.sink.metrics() if p.name.endswith(".step.number") and p.value == STEPS}
    (replayed_ns,) = (time_ns for time_ns, number in found.numbers.items() if number == STEPS)
    assert abs(replayed_ns - min(ended)) < 5e9, "the row is logged right behind its step"
