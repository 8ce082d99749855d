"""Trainings that resume, repeat, stop, fail or only evaluate: what is counted, what is closed, what is left behind."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trl
from transformers import Trainer, TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.support import tiny
from tests.trl import expected
from tests.trl.expected import Batches, check_rl_steps, check_sft_steps, evaluation_at
from tests.trl.runs import Run, exported_run, plain_run
from tests.trl.trainings import REWARDS, Book, online, sft


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


# -- resumed from a checkpoint


def test_a_resumed_sft_counts_anew(tiny_model: str, tmp_path: Path) -> None:
    saving = {"output_dir": str(tmp_path), "save_strategy": "steps", "save_steps": 2}
    plain_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=2, **saving))
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(sft(tiny_model, callbacks, max_steps=5, **saving)),
        lambda trainer: trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2")),
    )
    assert run.steps == [3, 4, 5]
    check_sft_steps(run, batches, without_input=[3])


def test_a_resumed_grpo_counts_anew(tiny_model: str, tmp_path: Path, tokenizer: Any) -> None:
    saving = {"output_dir": str(tmp_path), "save_strategy": "steps", "save_steps": 2}
    plain_run(lambda callbacks: online("GRPO", tiny_model, callbacks, max_steps=2, **saving))
    book = Book()
    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, max_steps=5, **saving),
        lambda trainer: trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2")),
    )
    assert run.steps == [3, 4, 5]
    check_rl_steps(run, book, REWARDS, tokenizer)


# -- more than one training


def twice(trainer: Trainer) -> None:
    trainer.train()
    trainer.train()


def test_a_second_training_takes_nothing_over_from_the_first(tiny_model: str) -> None:
    """The first ends with an evaluation, after which TRL keeps the last step's values in its buffers."""
    settings = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 4, "gradient_accumulation_steps": 1}
    plain = plain_run(lambda callbacks: online("GRPO", tiny_model, callbacks, **settings), twice)
    rows = [(step, row) for step, row in plain.rows if "loss" in row]
    assert [step for step, _ in rows] == [1, 2, 3, 4] * 2
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, logging_steps=3, **settings), twice)
    for step, row in rows[4:]:
        assert run.shown(names.RL_STEP_ENTROPY, step) == pytest.approx(row["entropy"], rel=1e-6)
        assert run.shown(names.RL_STEP_COMPLETION_LENGTH, step) == pytest.approx(row["completions/mean_length"])
        assert run.shown(names.RL_STEP_COUNT, step) == step
    assert [span.name for span in run.sink.spans()].count(names.SPAN_JOB.name) == 2


def test_one_callback_can_serve_two_trainers(tiny_model: str, tokenizer: Any) -> None:
    book = Book()
    first: list[Trainer] = []

    def both(callbacks: list[TrainerCallback]) -> Trainer:
        first.append(sft(tiny_model, callbacks, max_steps=1))
        return online("GRPO", tiny_model, callbacks, book=book)

    def one_after_the_other(second: Trainer) -> None:
        first[0].train()
        first[0].evaluate()
        first_rows.append(len(first[0].state.log_history))
        second.train()

    first_rows: list[int] = []
    run = exported_run(both, one_after_the_other)
    assert names.SFT_STEP_COUNT.name in run.sink.names()
    rows = {step: row for step, row in run.rows[first_rows[0] :] if "loss" in row}
    check_rl_steps(run, book, REWARDS, tokenizer, rows=rows)
    assert {point.resource[names.ATTR_RUN_METHOD.name] for point in run.points()} == {"GRPO"}


# -- evaluation outside of a training


def test_evaluation_alone(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks), lambda trainer: trainer.evaluate())
    assert run.shown(names.SFT_EVAL_LOSS) == evaluation_at(run, 0)["loss"]
    assert run.shown(names.SFT_STEP_TIMING, None, "eval") > 0
    assert names.SFT_STEP_COUNT.name not in run.sink.names()
    job, evaluation = by_name(run)[names.SPAN_JOB.name], by_name(run)[names.SPAN_EVAL.name]
    assert evaluation.parent_span_id == job.span_id
    assert job.start_ns == evaluation.start_ns < evaluation.end_ns <= job.end_ns


def test_evaluation_before_a_training(tiny_model: str) -> None:
    def evaluate_and_train(trainer: Trainer) -> None:
        trainer.evaluate()
        trainer.train()

    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=2), evaluate_and_train)
    assert run.shown(names.SFT_EVAL_LOSS, 0, event="evaluate") == evaluation_at(run, 0)["loss"]
    assert [run.shown(names.SFT_EVAL_LOSS, step) for step in run.steps] == [None, None], "it is not of this training"
    assert [run.shown(names.SFT_STEP_COUNT, step) for step in run.steps] == [1, 2]
    assert [span.name for span in run.sink.spans()].count(names.SPAN_JOB.name) == 2
    assert attempts(run) == {1}


def test_evaluation_after_a_training(tiny_model: str) -> None:
    def train_and_evaluate(trainer: Trainer) -> None:
        trainer.train()
        trainer.evaluate()

    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=2), train_and_evaluate)
    assert run.shown(names.SFT_EVAL_LOSS, 2, event="evaluate") == evaluation_at(run, 2)["loss"]
    assert run.shown(names.SFT_STEP_COUNT, 2) == 2
    assert run.shown(names.SFT_STEP_COUNT, 2, event="evaluate") is None, "what is counted is counted once"
    assert attempts(run) == {1}


# -- ends


def test_an_exception_ends_the_job_and_leaves_nothing_behind(tiny_model: str) -> None:
    run = failing_run(tiny_model, ValueError("the text of a row"))
    assert isinstance(run.error, ValueError)


def test_ctrl_c_ends_the_job_and_leaves_nothing_behind(tiny_model: str) -> None:
    run = failing_run(tiny_model, KeyboardInterrupt())
    assert isinstance(run.error, KeyboardInterrupt)


def failing_run(tiny_model: str, error: BaseException) -> Run:
    def fails_in_step_3(trainer_state: Any, completions: list[str], **_: Any) -> list[float]:
        if trainer_state.global_step == 2:
            raise error
        return [1.0] * len(completions)

    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, callbacks, rewards={fails_in_step_3: 1.0}),
        at_each_event=False,
        keep_trainer=True,
        expected=(type(error),),
    )
    assert run.error is error
    assert run.shown(names.RL_STEP_COUNT) == 2
    job = by_name(run)[names.SPAN_JOB.name]
    assert job.status == 2
    assert not job.events, "an exception's message may quote the data"
    return run


def test_a_training_after_a_failed_one(tiny_model: str, tokenizer: Any) -> None:
    failing = [True]

    def fails_once(trainer_state: Any, completion_ids: list[list[int]], **_: Any) -> list[float]:
        if failing[0] and trainer_state.global_step == 1:
            failing[0] = False
            raise ValueError
        return [len(ids) / 10 for ids in completion_ids]

    def again(trainer: Trainer) -> None:
        with pytest.raises(ValueError):
            trainer.train()
        book.forget()
        trainer.train()

    book, rewards = Book(), {fails_once: 1.0}
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, rewards=rewards), again)
    rows = dict([(step, row) for step, row in run.rows if "loss" in row][-4:])
    check_rl_steps(run, book, rewards, tokenizer, rows=rows)


def test_another_callback_stops_the_training(tiny_model: str) -> None:
    class Stops(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop = state.global_step == 2

    run = exported_run(lambda callbacks: sft(tiny_model, [*callbacks, Stops()], max_steps=9))
    assert run.shown(names.SFT_STEP_COUNT) == 2
    assert by_name(run)[names.SPAN_JOB.name].status == 0


@pytest.mark.parametrize("completed", [1, 2])
def test_a_batch_size_that_does_not_fit_is_one_attempt(completed: int, tiny_model: str) -> None:
    class RunsOutOfMemory(trl.SFTTrainer):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(inputs["input_ids"]) > 4 and self.state.global_step == completed:
                raise RuntimeError("CUDA out of memory.")
            return super().training_step(model, inputs, *args, **kwargs)

    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(
            sft(
                tiny_model,
                callbacks,
                trainer_class=RunsOutOfMemory,
                auto_find_batch_size=True,
                per_device_train_batch_size=5,
                gradient_accumulation_steps=1,
            )
        ),
        keep_trainer=True,
    )
    assert run.trainer._train_batch_size < 5, "it did not run out of memory"
    assert run.steps == [1, 2, 3, 4]
    assert run.shown(names.SFT_STEP_COUNT) == completed + 4, "four after those that fitted"
    for step in run.steps:
        _, tokens, _, _ = batches.of_step[step][-1]
        assert run.shown(names.SFT_STEP_TOKENS, step) == tokens
        row = [row for at, row in run.rows if at == step and "loss" in row][-1]
        assert run.shown(names.SFT_STEP_LOSS, step) == pytest.approx(row["loss"], abs=expected.LOSS_DIGITS)
    assert [span.name for span in run.sink.spans()] == [names.SPAN_JOB.name]


# -- other ways to the trainer


def test_a_callback_that_joins_late(tiny_model: str) -> None:
    def joined_late(callbacks: list[TrainerCallback]) -> Trainer:
        trainer = sft(tiny_model, [])
        for callback in callbacks:
            trainer.add_callback(callback)
        return batches.watch(trainer)

    batches = Batches()
    run = exported_run(joined_late, keep_trainer=True)
    check_sft_steps(run, batches)
    assert by_name(run)[names.SPAN_JOB.name].status == 0


def test_a_trainer_that_is_named(tiny_model: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("akka_otel_callbacks.trl.callback.find_trainer", lambda state: None)
    callback, book = AkkaTelemetryCallback(), Book()

    def named(callbacks: list[TrainerCallback]) -> Trainer:
        trainer = online("GRPO", tiny_model, callbacks, book=book)
        assert callback.attach(trainer) is callback
        return trainer

    check_rl_steps(exported_run(named, callback=callback), book, REWARDS, tokenizer)


def test_a_trainer_that_cannot_be_found(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("akka_otel_callbacks.trl.callback.find_trainer", lambda state: None)
    with caplog.at_level(logging.INFO, "akka_otel_callbacks"):
        run = exported_run(lambda callbacks: sft(tiny_model, callbacks), at_each_event=True)
    assert run.shown(names.SFT_STEP_COUNT) == 4
    for step in run.steps:
        assert run.shown(names.SFT_STEP_LOSS, step, event="log") == run.row(step)["loss"]
    assert "could not be found" in caplog.text


def attempts(run: Run) -> set[int]:
    return {point.resource[names.ATTR_RUN_ATTEMPT.name] for point in run.sink.metrics()}


def by_name(run: Run) -> dict[str, Any]:
    return {span.name: span for span in run.sink.spans()}
