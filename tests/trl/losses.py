"""SFT trainings in one of several processes, whose losses are known on each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import trl
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from tests.trl.runs import Run, exported_run
from tests.trl.trainings import sft

STEPS = 4


class Case(NamedTuple):
    """One training.

    Attributes:
        broken: the rank and the step whose loss is NaN.
        settings: of the trainer.
    """

    broken: tuple[int, int] | None = None
    settings: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


CASES = [
    Case(),
    Case(settings={"logging_steps": 2}),
    Case(broken=(0, 2)),
    Case(broken=(1, 2)),
    Case(broken=(0, 1), settings={"logging_steps": 2}),
    Case(broken=(1, 2), settings={"logging_nan_inf_filter": False}),
]


class Recording(trl.SFTTrainer):
    """Notes the loss of each of its micro-batches."""

    broken: tuple[int, int] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.losses: dict[int, list[float]] = {}

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        broken = (self.args.process_index, self.state.global_step + 1) == self.broken
        return loss * float("nan") if broken else loss

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)
        self.losses.setdefault(self.state.global_step + 1, []).append(float(loss))
        return loss


class Heals(TrainerCallback):
    """Keeps a broken gradient from the weights, once its norm is taken."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                torch.nan_to_num_(parameter.grad)


def trained(case: Case, model: str, more: dict[str, Any]) -> dict[str, Any]:
    """What the training's process published at each event, and the losses of its own micro-batches."""

    def make(callbacks: list[TrainerCallback]) -> Any:
        healing = [*callbacks, *([Heals()] if case.broken else [])]
        trainer = sft(
            model, healing, trainer_class=Recording, max_steps=STEPS, eval_strategy="no", **case.settings, **more
        )
        trainer.broken = case.broken
        return trainer

    run = exported_run(make, keep_trainer=True)
    return {
        "losses": run.trainer.losses,
        "shown": [[event, step, *shown(run, event, step)] for event, step in run.exports if run.sink.requests],
        "row_norms": {step: row["grad_norm"] for step, row in run.rows if "loss" in row},
    }


def shown(run: Run, event: str, step: int) -> list[float | None]:
    """The loss, the norm, and how many of either were not finite."""
    found = [run.shown(metric, step, event=event) for metric in (names.SFT_STEP_LOSS, names.SFT_STEP_GRAD_NORM)]
    counted = (names.SFT_STEP_LOSS.name, names.SFT_STEP_GRAD_NORM.name)
    return found + [run.shown(names.TELEMETRY_NONFINITE, step, name, event) for name in counted]
