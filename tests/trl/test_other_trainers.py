"""Trainers of another kind, and a TRL that is not known yet: the training goes on, and what is published is true."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import loop, rl
from tests.support import tiny
from tests.trl.expected import LOSS_DIGITS, RL_LOGGED, SFT_LOGGED
from tests.trl.runs import Run, exported_run, plain_run
from tests.trl.trainings import Book, common, online, sft

Make = Callable[[list[TrainerCallback]], Trainer]


# -- DPO and reward models


def preferences(rows: int = 16) -> Dataset:
    return Dataset.from_dict(
        {
            "prompt": [tiny.sentence(4, row) for row in range(rows)],
            "chosen": [" " + tiny.sentence(5 + row % 4, 100 + row) for row in range(rows)],
            "rejected": [" " + tiny.sentence(3, 200 + row) for row in range(rows)],
        }
    )


def dpo(model: str, callbacks: list[TrainerCallback], **settings: Any) -> Trainer:
    arguments = trl.DPOConfig(**common({"max_length": 32, "eval_strategy": "steps", "eval_steps": 2, **settings}))
    return trl.DPOTrainer(
        model=model,
        args=arguments,
        train_dataset=preferences(),
        eval_dataset=preferences(4),
        processing_class=tiny.tokenizer(),
        callbacks=callbacks,
    )


def reward(model: str, callbacks: list[TrainerCallback]) -> Trainer:
    torch.manual_seed(0)  # for the head, which no checkpoint has
    scorer = AutoModelForSequenceClassification.from_pretrained(model, num_labels=1)
    return trl.RewardTrainer(
        model=scorer,
        args=trl.RewardConfig(**common({"max_length": 32})),
        train_dataset=preferences(),
        processing_class=tiny.tokenizer(),
        callbacks=callbacks,
    )


def test_a_trainer_that_counts_no_tokens_has_those_of_its_masks(tiny_model: str) -> None:
    """As transformers' own, and what Axolotl, LLaMA-Factory and ms-swift derive from it."""
    counted: list[int] = []

    def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch = padded(rows)
        counted.append(int(batch["attention_mask"].sum()))
        return batch

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        return Trainer(
            model=AutoModelForCausalLM.from_pretrained(tiny_model),
            args=TrainingArguments(**common({"max_steps": 3})),
            train_dataset=[tokenizer(tiny.sentence(4 + 3 * row, row)) for row in range(24)],
            data_collator=collate,
            callbacks=callbacks,
        )

    tokenizer = tiny.tokenizer()
    padded = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    run = exported_run(make)
    each = len(counted) // 3
    expected = [sum(counted[each * step : each * (step + 1)]) for step in range(3)]
    assert [run.shown(names.SFT_STEP_TOKENS, step) for step in run.steps] == expected
    assert all(run.shown(names.SFT_STEP_THROUGHPUT, step) for step in run.steps)


@pytest.mark.parametrize("make", [dpo, reward])
def test_a_trainer_of_another_kind_trains_on(
    make: Callable[[str, list[TrainerCallback]], Trainer], tiny_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = plain_run(lambda callbacks: make(tiny_model, callbacks))
    guard.failures.clear()
    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(lambda callbacks: make(tiny_model, callbacks))
    assert not guard.failures
    assert all(torch.equal(run.parameters[name], tensor) for name, tensor in plain.parameters.items())
    of_its_kind = [message for message in messages(caplog) if "neither GRPO, RLOO nor SFT" in message]
    assert len(of_its_kind) == 1
    assert not [message for message in messages(caplog) if "has no" in message]
    for step in run.steps:
        for key in ("loss", "grad_norm", "learning_rate"):
            logged = pytest.approx(run.row(step)[key], rel=1e-5, abs=LOSS_DIGITS if key == "loss" else 0)
            assert run.shown(SFT_LOGGED[key], step, event="log") == logged, key
        assert run.shown(names.SFT_STEP_COUNT, step) == step
    assert run.steps == [1, 2, 3, 4]


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "akka_otel_callbacks"]


# -- TRL's other trainers that generate and are rewarded


def rewarded(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 10 for text in completions]


def online_dpo(model: str, callbacks: list[TrainerCallback]) -> Trainer:
    if hasattr(trl, "OnlineDPOTrainer"):
        package: Any = trl
    else:
        package = pytest.importorskip("trl.experimental.online_dpo")
    return package.OnlineDPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        reward_funcs=rewarded,
        args=package.OnlineDPOConfig(**common({"max_new_tokens": 8, "max_length": 64})),
        train_dataset=tiny.prompts(32),
        processing_class=tiny.tokenizer(),
        callbacks=callbacks,
    )


def a2po(model: str, callbacks: list[TrainerCallback]) -> Trainer:
    package = pytest.importorskip("trl.experimental.a2po")
    return package.A2POTrainer(
        model=model,
        reward_funcs=rewarded,
        args=package.A2POConfig(**common({"max_completion_length": 8})),
        train_dataset=tiny.prompts(32),
        processing_class=tiny.tokenizer(),
        callbacks=callbacks,
    )


SHOWN = {
    online_dpo: {names.RL_STEP_GRAD_NORM: "grad_norm", names.RL_STEP_LEARNING_RATE: "learning_rate"},
    a2po: {
        names.RL_STEP_GRAD_NORM: "grad_norm",
        names.RL_STEP_LEARNING_RATE: "learning_rate",
        names.RL_STEP_REWARD: "reward",
    },
}


@pytest.mark.parametrize("make", SHOWN, ids=lambda make: make.__name__)
def test_another_trainer_that_is_rewarded(make: Any, tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    guard.failures.clear()
    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(lambda callbacks: make(tiny_model, callbacks))
    assert not guard.failures
    assert not [name for name in run.sink.names() if ".sft." in name], "it is no supervised training"
    assert run.steps == [1, 2, 3, 4]
    for step in run.steps:
        for metric, key in SHOWN[make].items():
            assert run.shown(metric, step, event="log") == pytest.approx(run.row(step)[key], rel=1e-5), key
    assert names.RL_ROLLOUT_COMPLETION_LENGTH.name not in run.sink.names(), "it does not say them in TRL's own form"
    terms = {of for step in run.steps for of in run.figures(step, "log").get(names.RL_STEP_REWARD_TERM.name, {})}
    assert terms <= {"total"}, "an implicit reward is no term"
    assert len([message for message in messages(caplog) if "has no" in message]) == 1
    (unused,) = [message for message in messages(caplog) if "never calls" in message]
    assert names.RL_STEP_TOKENS.name in unused


def test_what_comes_after_the_end_of_a_step_is_not_the_next_one_s() -> None:
    """AsyncGRPO's callbacks stand behind ours and fill the buffers of the step that has ended."""
    values: Any = {"train": {"entropy": [1.0]}}
    assert loop._training_buffers(SimpleNamespace(_metrics=values)) == values["train"]  # type: ignore[arg-type]
    filled_late: Any = SimpleNamespace(_metrics=values, _log_step_metrics=lambda: None)
    assert loop._training_buffers(filled_late) is None


# -- hosts that inherit TRL's methods and go another way


class AnotherWay(trl.GRPOTrainer):
    """Generates by itself, as ms-swift's does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._generate = functools.partial(inspect.unwrap(trl.GRPOTrainer._generate), self)


def test_a_method_that_is_never_called_is_named(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, trainer_class=AnotherWay))
    (line,) = [message for message in messages(caplog) if "never calls" in message]
    assert "AnotherWay" in line
    assert "_generate" in line
    assert names.RL_ROLLOUT_COMPLETION_LENGTH.name in line
    assert names.RL_ROLLOUT_COMPLETION_LENGTH.name not in run.sink.names()
    for step in run.steps:
        assert set(run.figures(step)[names.RL_STEP_TIMING.name]) == {"reward"}, "an update is known by what it is not"
        assert run.shown(names.RL_STEP_REWARD, step) == pytest.approx(run.row(step)["reward"], rel=1e-5)
        assert run.shown(names.RL_STEP_COMPLETION_LENGTH, step) == run.row(step)["completions/mean_length"]


def test_a_loss_that_is_never_seen_is_the_log_s(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    class Own(trl.SFTTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.training_step = functools.partial(inspect.unwrap(Trainer.training_step), self)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(*args, **kwargs)

    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Own))
    (line,) = [message for message in messages(caplog) if "never calls" in message]
    assert "training_step" in line
    assert names.SFT_STEP_LOSS.name in line
    for step in run.steps:
        assert run.shown(names.SFT_STEP_LOSS, step, event="log") == run.row(step)["loss"]


# -- a TRL that does not have what the callback reads


class Unknown:
    """Hides some of its attributes from the callback, as if TRL had renamed them."""

    hidden: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in type(self).hidden and str(sys._getframe(1).f_globals["__name__"]).startswith("akka_otel_callbacks"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def unknown(known: type[Trainer], *hidden: str) -> type[Trainer]:
    return type(known.__name__, (Unknown, known), {"hidden": frozenset(hidden)})


RENAMED = ("_metrics", "_calculate_rewards", "_generate", "_get_grad_norm", "reward_func_names", "accelerator")


def degraded_run(make: Make, caplog: pytest.LogCaptureFixture) -> Run:
    plain = plain_run(make)
    guard.failures.clear()
    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(make)
    assert not guard.failures
    assert all(torch.equal(run.parameters[name], tensor) for name, tensor in plain.parameters.items())
    assert len([message for message in messages(caplog) if "has no" in message]) == 1, messages(caplog)
    assert run.steps == [1, 2, 3, 4]
    return run


def test_an_unknown_grpo_is_read_from_its_log(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    def make(callbacks: list[TrainerCallback]) -> Trainer:
        return online("GRPO", tiny_model, callbacks, trainer_class=unknown(trl.GRPOTrainer, *RENAMED), beta=0.1)

    run = degraded_run(make, caplog)
    for step in run.steps:
        row = run.row(step)
        for key, metric in RL_LOGGED.items():  # the loss is summed up with more digits than the log's
            wanted = pytest.approx(row[key], rel=1e-6, abs=LOSS_DIGITS if key == "loss" else 0) if key in row else None
            assert run.shown(metric, step, event="log") == wanted, key
        assert run.shown(names.RL_STEP_REWARD, step, event="log") == row["reward"]
        assert run.shown(names.RL_STEP_COMPLETION_LENGTH, step, event="log") == row["completions/mean_length"]
        assert run.shown(names.RL_STEP_COUNT, step) == step
        assert run.shown(names.RL_STEP_ROLLOUTS, step, event="log") is None
        assert names.RL_STEP_TIMING.name not in run.figures(step), "an update is known by what is not of it"
    assert names.RL_ROLLOUT_REWARD.name not in run.sink.names()


def test_an_unknown_sft_is_read_from_its_log(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    hidden = (
        "_metrics",
        "training_step",
        "get_batch_samples",
        "_save_checkpoint",
        "_get_grad_norm",
        "_total_train_tokens",
    )

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        return sft(tiny_model, callbacks, trainer_class=unknown(trl.SFTTrainer, *hidden))

    run = degraded_run(make, caplog)
    for step in run.steps:
        for key, metric in SFT_LOGGED.items():
            assert run.shown(metric, step, event="log") == pytest.approx(run.row(step)[key]), key
        shown = run.figures(step, "log")
        assert not {names.SFT_STEP_TOKENS.name, names.SFT_STEP_PADDING.name, names.SFT_STEP_THROUGHPUT.name} & set(
            shown
        )
        assert set(shown[names.SFT_STEP_TIMING.name]) == {"forward_backward", "optimizer", "step"}


def test_buffers_in_another_form_cost_what_is_in_them(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    class Reshaped(trl.SFTTrainer):
        @property
        def _metrics(self) -> Any:
            known = self.__dict__["_known"]
            of_ours = str(sys._getframe(1).f_globals["__name__"]).startswith("akka_otel_callbacks")
            return {"training": known["train"]} if of_ours else known

        @_metrics.setter
        def _metrics(self, value: Any) -> None:
            self.__dict__["_known"] = value

    run = degraded_run(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Reshaped), caplog)
    for step in run.steps:
        accuracy = run.shown(names.SFT_STEP_TOKEN_ACCURACY, step, event="log")
        assert accuracy == run.row(step)["mean_token_accuracy"]
        assert run.shown(names.SFT_STEP_LOSS, step) == pytest.approx(run.row(step)["loss"], abs=LOSS_DIGITS)


@pytest.mark.parametrize("steps", [{1, 2, 3}, {1}, {2}, {2, 3}], ids=["always", "at first", "once", "from then on"])
@pytest.mark.parametrize(
    "form", [lambda scores: scores.nansum(dim=1), lambda scores: scores[:, :2], lambda scores: None]
)
def test_scores_in_another_form_leave_the_logged_reward(
    form: Callable[[torch.Tensor], Any], steps: set[int], tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = rl.RLLoop._rewarded

    def rewarded(loop: rl.RLLoop, scores: torch.Tensor, *args: Any) -> None:
        known(loop, form(scores) if loop._number + 1 in steps else scores, *args)

    monkeypatch.setattr(rl.RLLoop, "_rewarded", rewarded)
    guard.failures.clear()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, max_steps=3))
    assert not guard.failures
    check_logged_rewards(run, steps)
    assert all("reward" in run.figures(step)[names.RL_STEP_TIMING.name] for step in run.steps)


def check_logged_rewards(run: Run, unscored: Collection[int]) -> None:
    """The rewards of these steps are those that TRL logged. Of the others the scores are known."""
    for step in run.steps:
        row = run.row(step)
        assert run.shown(names.RL_STEP_COUNT, step) == step
        assert run.shown(names.RL_STEP_REWARD, step) == pytest.approx(row["reward"], rel=1e-5)
        terms = run.figures(step)[names.RL_STEP_REWARD_TERM.name]
        assert terms["penalty"] == pytest.approx(2 * row["rewards/penalty/mean"], rel=1e-5)
        assert run.shown(names.RL_STEP_ROLLOUTS, step) == (None if step in unscored else 8)


class ScoresElsewhere(TrainerCallback):
    """Gives the trainer other scores from the third step on, such as those of a service of its own."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2:
            self._book.trainer._calculate_rewards = self._scores  # type: ignore[union-attr]

    @staticmethod
    def _scores(inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> torch.Tensor:
        return torch.tensor([[len(ids) / 4, 1.0, -float(row % 3)] for row, ids in enumerate(completion_ids)])


def test_scores_that_are_not_heard_any_more_leave_the_logged_reward(tiny_model: str) -> None:
    book = Book()
    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, [*callbacks, ScoresElsewhere(book)], book=book, max_steps=4)
    )
    check_logged_rewards(run, unscored=(3, 4))
