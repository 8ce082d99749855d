"""Telemetry never disturbs a training: the same parameters to the last bit, whatever fails in it."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainerState

from akka_otel_callbacks.common import guard, telemetry
from akka_otel_callbacks.common.recording import recorder
from akka_otel_callbacks.common.tracing import trace
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import callback, loop, rl, session, sft, training
from tests.trl import trainings
from tests.trl.runs import Run, exported_run, plain_run

BUSY = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
Make = Callable[[list[TrainerCallback]], Trainer]


@pytest.fixture(scope="module", params=["GRPO", "SFT"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def make(kind: str, tiny_model: str) -> Make:
    if kind == "SFT":
        return lambda callbacks: trainings.sft(tiny_model, callbacks, **BUSY)
    return lambda callbacks: trainings.online("GRPO", tiny_model, callbacks, num_iterations=2, **BUSY)


@pytest.fixture(scope="module")
def undisturbed(make: Make) -> Run:
    return plain_run(make)


@pytest.fixture(scope="module")
def watched(make: Make) -> Run:
    return exported_run(make, keep_trainer=True)


def assert_same_training(run: Run, undisturbed: Run) -> None:
    assert set(run.parameters) == set(undisturbed.parameters)
    assert all(torch.equal(run.parameters[name], undisturbed.parameters[name]) for name in run.parameters)
    assert run.random_states == undisturbed.random_states
    assert untimed(run.rows) == untimed(undisturbed.rows)


def untimed(rows: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    clocks = ("runtime", "per_second", "step_time", "preparation_time")
    return [(step, {key: value for key, value in row.items() if not key.endswith(clocks)}) for step, row in rows]


def test_a_training_is_the_same_to_the_last_bit(watched: Run, undisturbed: Run) -> None:
    assert watched.steps == [1, 2, 3]
    assert_same_training(watched, undisturbed)


# -- whatever fails


class Injected(Exception):
    pass


def failing(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def fails(*args: Any, **kwargs: Any) -> Any:
        reached.append(method.__qualname__)
        raise Injected(method.__qualname__)

    return fails


reached: list[str] = []

HOOKS: dict[str, list[tuple[type, str]]] = {
    "GRPO": [(rl.RLLoop, "_completed"), (rl.RLLoop, "_rewarded"), (rl.RLLoop, "_trained")],
    "SFT": [(sft.SFTLoop, "_fetched"), (sft.SFTLoop, "_trained")],
}
HOOKS_OF_BOTH = [
    (loop.Loop, name) for name in ("gradients_ready", "optimized", "end_step", "logged", "_normed", "_saved")
]


def test_every_hook_may_fail(kind: str, make: Make, undisturbed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reached.clear()
    guard.failures.clear()
    hooks = [(owner, name) for owner, name in HOOKS[kind] + HOOKS_OF_BOTH if hasattr(owner, name)]
    begin = {"GRPO": rl.RLLoop, "SFT": sft.SFTLoop}[kind]
    for owner, name in [*hooks, (begin, "begin_step"), (training.Training, "evaluated")]:
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    run = exported_run(make, at_each_event=False)
    assert {name.split(".")[1] for name in reached} == {name for _, name in hooks} | {"begin_step", "evaluated"}
    assert sum(guard.failures.values()) == len(reached), "each failure is counted, and nothing else failed"
    assert_same_training(run, undisturbed)
    assert failed(run) == 3
    assert run.sink.latest(STEPS[kind]).value == 3, "a counter that stood still would look like a stalled run"


@pytest.mark.parametrize("name", ["_begun", "_ended"])
def test_a_step_that_fails_counts_and_leaves_nothing_to_the_next(
    name: str, kind: str, make: Make, watched: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"GRPO": rl.RLLoop, "SFT": sft.SFTLoop}[kind]
    method, calls = getattr(owner, name), itertools.count()
    second = {"_begun": 2, "_ended": 1}[name]  # a loop begins one capture for what comes before its first step

    def fails_once(*args: Any) -> Any:
        if next(calls) == second:
            raise Injected
        return method(*args)

    monkeypatch.setattr(owner, name, fails_once)
    run = exported_run(make)
    assert failed(run) == 1
    assert [run.shown(STEPS[kind], step) for step in (1, 2, 3)] == [1, 2, 3]
    tokens = {"GRPO": names.RL_STEP_TOKENS, "SFT": names.SFT_STEP_TOKENS}[kind]
    for metric in (tokens, names.RL_STEP_LOSS if kind == "GRPO" else names.SFT_STEP_LOSS):
        assert run.shown(metric, 3) == watched.shown(metric, 3)


STEPS = {"GRPO": names.RL_STEP_COUNT, "SFT": names.SFT_STEP_COUNT}


def failed(run: Run) -> float:
    dropped = run.sink.series(names.TELEMETRY_DROPPED)
    return max(point.value for point in dropped if "failed" in point.attributes.values())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (callback, "find_trainer"),
        (callback, "running"),
        (training, "kind_of"),
        (session, "identify"),
        (session, "begin"),
        (session, "tap_train"),
        (telemetry.Telemetry, "start"),
        (telemetry.Telemetry, "capture"),
        (telemetry.Telemetry, "span"),
        (trace.Trace, "end"),
        (recorder.Recorder, "record"),
        (training.Training, "_watch"),
        (training, "remember"),
        (training.Training, "end"),
    ],
    ids=lambda value: getattr(value, "__name__", value).rsplit(".", 1)[-1],
)
@pytest.mark.parametrize("kind", ["SFT"], scope="module")
def test_every_part_may_fail(
    owner: Any,
    name: str,
    make: Make,
    undisturbed: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    reached.clear()
    guard.failures.clear()
    monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        run = exported_run(make, at_each_event=False)
    assert reached
    assert_same_training(run, undisturbed)
    warnings = [record for record in caplog.records if record.name == "akka_otel_callbacks" and record.exc_info]
    assert len(warnings) == len({where for where, _ in guard.failures}), "one warning per cause"


EVENTS = ("on_step_begin", "on_pre_optimizer_step", "on_optimizer_step", "on_step_end", "on_log")


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_that_another_callback_passes_on_in_its_own_way_raises_nothing(event: str) -> None:
    fire, state = getattr(callback.AkkaTelemetryCallback(), event), TrainerState()
    guard.failures.clear()
    fire(None, state, None, {"loss": 1.0}, model=None)
    fire(args=None, state=state, control=None, logs={})
    fire(None, state=state, control=None)
    fire(None, state, control=None)
    assert not guard.failures
    fire()
    assert sum(guard.failures.values()) == 1


# -- what is left behind


def test_a_trainer_can_be_collected_as_soon_as_without_telemetry(make: Make) -> None:
    def dies_by_itself(callbacks: list[TrainerCallback]) -> bool:
        trainer = make(callbacks)
        trainer.train()
        gc.collect()
        gc.disable()
        try:
            left = weakref.ref(trainer)
            del trainer
            return left() is None
        finally:
            gc.enable()

    ours = callback.AkkaTelemetryCallback()
    assert dies_by_itself([ours]) == dies_by_itself([])


def test_nothing_is_left_on_the_trainer(watched: Run) -> None:
    assert not overridden(watched.trainer)
    assert not overridden(watched.trainer.accelerator)


def overridden(instance: object) -> set[str]:
    """The methods that an instance has of its own."""
    return {name for name in vars(instance) if callable(getattr(type(instance), name, None))}
