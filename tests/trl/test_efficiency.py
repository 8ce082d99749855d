"""The utilization of real trainings, against the positions that their losses saw and the matrices of their model."""

from __future__ import annotations

from typing import Any

import pytest
import trl
from torch import nn

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.trl.runs import Run, exported_run
from tests.trl.trainings import online, sft

PEAK_FLOPS = 1e12
"""More than these machines reach, so that no figure is impossible."""


class Seen:
    """The token positions of every micro-batch that a trainer computed a loss of in training: [all, scored]."""

    def __init__(self) -> None:
        self.by_step: dict[int, list[tuple[int, int]]] = {}

    def watching(self, trainer_class: type[Any]) -> type[Any]:
        seen = self

        class Watching(trainer_class):  # type: ignore[misc]
            def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
                if self.model.training:
                    seen.by_step.setdefault(self.state.global_step + 1, []).append(positions(inputs))
                return super().compute_loss(model, inputs, *args, **kwargs)

        return Watching

    def flops(self, step: int, layers: int, head: int) -> int:
        return sum(6 * (layers * tokens + head * scored) for tokens, scored in self.by_step[step])


def positions(inputs: Any) -> tuple[int, int]:
    if "completion_ids" in inputs:
        scored = inputs["completion_ids"].numel()
        return inputs["prompt_ids"].numel() + scored, scored
    return inputs["input_ids"].numel(), inputs["input_ids"].numel()


def matrices(model: Any) -> tuple[int, int]:
    """Parameters of the linear layers, and of the head, of a plain causal model without an adapter."""
    linear = {name: module.weight.numel() for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    head = linear.pop("lm_head")
    return sum(linear.values()), head


def check(run: Run, seen: Seen, metric: Any, timing: Any, phase: str) -> None:
    layers, head = matrices(run.trainer.model)
    assert run.steps
    for step in run.steps:
        seconds = run.shown(timing, step, phase)
        assert seconds is not None
        expected = seen.flops(step, layers, head) / seconds / PEAK_FLOPS
        assert run.shown(metric, step) == pytest.approx(expected, rel=1e-9), f"step {step}"


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="one generation a step"),
        pytest.param({"num_iterations": 2}, id="every generation trained on twice"),
        pytest.param({"gradient_accumulation_steps": 1, "steps_per_generation": 2}, id="a generation for two steps"),
    ],
)
def test_a_reinforcement_update(tiny_model: str, settings: dict[str, Any]) -> None:
    seen = Seen()
    run = exported_run(
        lambda callbacks: online(
            "GRPO", tiny_model, callbacks, trainer_class=seen.watching(trl.GRPOTrainer), max_steps=3, **settings
        ),
        callback=AkkaTelemetryCallback(peak_flops=PEAK_FLOPS),
        keep_trainer=True,
    )
    check(run, seen, names.RL_STEP_MFU, names.RL_STEP_TIMING, "update_actor")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="padded"),
        pytest.param({"packing": True, "max_length": 64}, id="packed"),
        pytest.param({"eval_strategy": "steps", "eval_steps": 1}, id="evaluations between"),
    ],
)
def test_a_supervised_update(tiny_model: str, settings: dict[str, Any]) -> None:
    seen = Seen()
    run = exported_run(
        lambda callbacks: sft(
            tiny_model, callbacks, trainer_class=seen.watching(trl.SFTTrainer), max_steps=3, **settings
        ),
        callback=AkkaTelemetryCallback(peak_flops=PEAK_FLOPS),
        keep_trainer=True,
    )
    check(run, seen, names.SFT_STEP_MFU, names.SFT_STEP_TIMING, "step")


def test_a_cpu_has_no_peak_and_no_utilization(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=1))
    assert run.shown(names.SFT_STEP_TOKENS, 1) is not None
    assert run.shown(names.SFT_STEP_MFU, 1) is None


def test_an_impossible_utilization_is_not_published(tiny_model: str) -> None:
    callback = AkkaTelemetryCallback(peak_flops=1.0)
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=1), callback=callback)
    assert run.shown(names.SFT_STEP_MFU, 1) is None
