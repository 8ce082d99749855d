"""Log rows only fill what a step lacks: a step's own figures stand, whatever the trainer logs and when."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import SFTStep
from akka_otel_callbacks.trl.log_rows import LogRows
from akka_otel_callbacks.trl.vocabulary import sft_step
from tests.support import tiny
from tests.trl.expected import LOSS_DIGITS, SFT_LOGGED
from tests.trl.runs import Run, exported_run, plain_run
from tests.trl.test_other_trainers import dpo
from tests.trl.trainings import common, sft

OWN = ("loss", "grad_norm", "learning_rate")
Settings = dict[str, Any]


class Diverges(Trainer):
    """Its loss is NaN in the second step. A trainer of transformers itself, which keeps no figures of a step."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        nan = self.args.run_name == "diverges" and self.state.global_step == 1
        return loss * float("nan") if nan else loss


def plain(model: str, callbacks: list[TrainerCallback], **settings: Any) -> Trainer:
    tokenizer = tiny.tokenizer()
    rows = [tokenizer(text)["input_ids"] for text in tiny.texts(32)["text"]]
    dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
    return Diverges(
        model=AutoModelForCausalLM.from_pretrained(model),
        args=TrainingArguments(**common({"max_steps": 5, "per_device_train_batch_size": 1, **settings})),
        train_dataset=dataset,
        callbacks=callbacks,
    )


def dpo_of_five(model: str, callbacks: list[TrainerCallback], **settings: Any) -> Trainer:
    return dpo(model, callbacks, max_steps=5, **settings)


@pytest.mark.parametrize("make", [plain, dpo_of_five])
@pytest.mark.parametrize("settings", [{"logging_steps": 3}, {"logging_steps": 2, "logging_first_step": True}])
def test_the_mean_of_an_interval_replaces_nothing(
    make: Callable[..., Trainer], settings: Settings, tiny_model: str
) -> None:
    logged = plain_run(lambda callbacks: make(tiny_model, callbacks))
    run = exported_run(lambda callbacks: make(tiny_model, callbacks, **settings))
    assert run.steps == [1, 2, 3, 4, 5]
    for event, step in run.exports:
        for key in OWN:
            digits = LOSS_DIGITS if key == "loss" else 1e-9
            wanted = pytest.approx(logged.row(step)[key], rel=1e-5, abs=digits)
            assert run.shown(SFT_LOGGED[key], step, event=event) == wanted, (event, step, key)


@pytest.mark.parametrize("nan_filter", [True, False])
@pytest.mark.parametrize("logging_steps", [1, 3])
def test_no_mean_of_good_losses_stands_in_for_a_nan(nan_filter: bool, logging_steps: int, tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: plain(
            tiny_model,
            callbacks,
            run_name="diverges",
            logging_nan_inf_filter=nan_filter,
            logging_steps=logging_steps,
            max_steps=3,
        )
    )
    loss = names.SFT_STEP_LOSS
    for event, step in run.exports:
        assert run.shown(names.TELEMETRY_NONFINITE, step, loss.name, event) == (step > 1) + (step > 2), (event, step)
        assert (run.shown(loss, step, event=event) is None) == (step > 1), (event, step)


# -- the learning rate


def rates(run: Run) -> list[float | None]:
    return [run.shown(names.SFT_STEP_LEARNING_RATE, step) for step in run.steps]


@pytest.mark.parametrize("tensor", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_the_learning_rate_is_the_one_that_was_applied(tensor: bool, groups: int, tiny_model: str) -> None:
    """A rate that is a tensor is written over by the scheduler, as of torchao's and of compiled optimizers."""

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        model = AutoModelForCausalLM.from_pretrained(tiny_model)
        parameters = list(model.parameters())
        parts = [{"params": parameters[at::groups], "lr": as_rate(1e-3 / (1 + at))} for at in range(groups)]
        optimizer = torch.optim.AdamW(parts, lr=as_rate(1e-3))
        return sft(model, callbacks, trainer={"optimizers": (optimizer, None), "processing_class": tiny.tokenizer()})

    def as_rate(value: float) -> Any:
        return torch.tensor(value) if tensor else value

    run = exported_run(make)
    assert rates(run) == pytest.approx([0.001, 0.00075, 0.0005, 0.00025])
    assert rates(run) == pytest.approx([run.row(step)["learning_rate"] for step in run.steps])


# -- the rule by itself

losses = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
events = st.lists(st.tuples(losses, losses, st.booleans()), max_size=12)


@given(steps=events, nan_filter=st.booleans(), everything=st.booleans())
def test_a_row_never_takes_the_place_of_a_steps_own(
    steps: list[tuple[float | None, float | None, bool]], nan_filter: bool, everything: bool
) -> None:
    rows = LogRows(sft_step, everything=everything, nan_filter=nan_filter)
    broken = False
    for number, (loss, norm, logs) in enumerate(steps):
        rows.follow(SFTStep(number=number, loss=loss, grad_norm=norm))
        broken |= is_broken(loss) or (nan_filter and is_broken(norm))
        if not logs:
            continue
        row = {"loss": 1.0, "grad_norm": 2.0, "learning_rate": 3.0, "mean_token_accuracy": 0.5, "epoch": 0.1}
        capture = rows.capture(row, number)
        assert capture is not None
        assert rows.addition(capture.row, number + 1) is None, "the row of a step that is not there"
        added = rows.addition(capture.row, number)
        assert added is not None
        assert added.loss == (1.0 if loss is None and not broken else None)
        assert added.grad_norm == (2.0 if norm is None else None)
        assert added.learning_rate == 3.0
        assert added.token_accuracy == (0.5 if everything else None)
        broken &= not nan_filter


def is_broken(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def test_a_row_before_the_first_step_adds_nothing() -> None:
    rows = LogRows(sft_step, everything=True, nan_filter=True)
    assert rows.addition({"loss": 1.0}, 0) is None
    assert LogRows(sft_step, everything=False, nan_filter=True).capture({"custom": 1.0}, 0) is None
