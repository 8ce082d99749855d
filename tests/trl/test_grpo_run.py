"""Whole GRPO and RLOO trainings: every figure of every step against the rollouts and the trainer's own log."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trl
from packaging.version import Version
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from tests.support import tiny
from tests.trl import expected
from tests.trl.runs import Figures, Run, exported_run, plain_run
from tests.trl.trainings import REWARDS, TRL, Book, letters, online

STEPS = 4


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def variant(name: str, since: str | None = None, kind: str = "GRPO", **settings: Any) -> Any:
    """One training by its settings; `since` is the TRL that they are known from."""
    marks = pytest.mark.skipif(Version(since) > TRL, reason=f"TRL {TRL} does not have it") if since else ()
    return pytest.param(kind, settings, id=name, marks=marks)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        variant("plain"),
        variant("no-accumulation", gradient_accumulation_steps=1),
        variant("two-iterations", num_iterations=2),
        variant("generates-every-second-step", steps_per_generation=4),
        variant("generates-twice-a-step", steps_per_generation=1),
        variant("kl", beta=0.1),
        variant("loss-grpo", loss_type="grpo"),
        variant("loss-dapo", loss_type="dapo"),
        variant("loss-cispo", since="0.26", loss_type="cispo", epsilon_high=5.0),
        variant("loss-sapo", since="0.26", loss_type="sapo"),
        variant("gspo", loss_type="grpo", importance_sampling_level="sequence"),
        variant("tokens-counted-by-transformers-too", include_num_input_tokens_seen="all"),
        variant("truncated-ones-masked", mask_truncated_completions=True),
        variant("unscaled", scale_rewards="none"),
        variant("rloo", kind="RLOO"),
        variant("rloo-kl", kind="RLOO", beta=0.1, num_iterations=2),
    ],
)
def test_every_figure_of_every_step(kind: str, settings: dict[str, Any], tiny_model: str, tokenizer: Any) -> None:
    book = Book()
    run = exported_run(lambda callbacks: online(kind, tiny_model, callbacks, book=book, **settings))
    expected.check_rl_steps(run, book, REWARDS, tokenizer)
    assert run.steps == [1, 2, 3, 4]


@pytest.mark.skipif(not hasattr(trl.GRPOConfig, "entropy_coef"), reason=f"TRL {TRL} has no entropy bonus")
@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_with_an_entropy_bonus_the_policy_loss_is_the_loss_without_the_bonus(
    loss_type: str, tiny_model: str, tokenizer: Any
) -> None:
    book = Book()
    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, loss_type=loss_type, entropy_coef=0.05)
    )
    expected.check_rl_steps(
        run,
        book,
        REWARDS,
        tokenizer,
        more=lambda row: {names.RL_STEP_POLICY_LOSS.name: {None: row["loss"] + 0.05 * row["entropy"]}},
    )


@pytest.mark.parametrize("scale_rewards", ["group", "batch"])
def test_groups_without_variance_are_counted_however_rewards_are_scaled(
    scale_rewards: str, tiny_model: str, tokenizer: Any
) -> None:
    book, rewards = Book(), {by_prompt: 1.0}
    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, rewards=rewards, scale_rewards=scale_rewards)
    )
    expected.check_rl_steps(run, book, rewards, tokenizer)
    assert {run.shown(names.RL_STEP_FRAC_REWARD_ZERO_STD, step) for step in run.steps} > {0.5}


def by_prompt(answer: list[int], completion_ids: list[list[int]], **_: Any) -> list[float]:
    """The same for all completions of a prompt, but of every third."""
    return [len(ids) if row % 3 == 0 else float(row) for row, ids in zip(answer, completion_ids, strict=True)]


# -- whatever is logged


@pytest.fixture(scope="module")
def logged_every_step(tiny_model: str) -> Run:
    """A training without telemetry that evaluates every second step and logs all of its steps."""
    return plain_run(lambda callbacks: online("GRPO", tiny_model, callbacks, **EVALUATING))


EVALUATING = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "beta": 0.05}


@pytest.mark.parametrize(
    "logging",
    [{"logging_steps": 1}, {"logging_steps": 5}, {"logging_strategy": "no"}],
    ids=["every-step", "every-fifth-step", "never"],
)
def test_figures_do_not_depend_on_what_is_logged(
    logging: dict[str, Any], tiny_model: str, tokenizer: Any, logged_every_step: Run
) -> None:
    book = Book()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, **EVALUATING, **logging))
    rows = {step: logged_every_step.row(step) for step in range(1, 8)}
    expected.check_rl_steps(run, book, REWARDS, tokenizer, rows=rows)
    assert run.steps == list(rows)
    assert all(
        of_the_step(run.figures(step)) == of_the_step(run.figures(step, event))
        for event, step in run.exports
        if event in ("log", "evaluate")
    ), "a log row or an evaluation changed the figures of a step"


def of_the_step(figures: Figures) -> Figures:
    """Without what an evaluation may change."""
    return {name: series for name, series in figures.items() if name != names.RL_EVAL_REWARD.name}


def test_every_evaluation_set_has_its_own_reward(tiny_model: str) -> None:
    book = Book()
    sets = {"near": tiny.prompts(2), "far": tiny.prompts(6)}
    run = exported_run(
        lambda callbacks: online(
            "GRPO",
            tiny_model,
            callbacks,
            book=book,
            trainer={"eval_dataset": sets},
            **{**EVALUATING, "max_steps": 2, "per_device_eval_batch_size": 4},
        )
    )
    weights = np.array(list(REWARDS.values()))
    columns = [
        np.array([scoring.scores for scoring in book.scorings if not scoring.training and scoring.function == name])
        for name in (score.__name__ for score in REWARDS)
    ]  # [batches][completions] of each function
    scores = np.stack([column.astype(float).reshape(-1) for column in columns])
    totals = np.nansum(weights[:, None] * scores, axis=0)
    assert len(totals) == 8 + 24
    wanted = {"near": totals[:8].mean(), "far": totals[8:].mean()}
    assert run.figures()[names.RL_EVAL_REWARD.name] == pytest.approx(wanted, rel=1e-5)
    evaluations = [span for span in run.sink.spans() if span.name == names.SPAN_EVAL.name]
    assert len(evaluations) == 2


def test_an_evaluation_alone_has_its_reward(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks), lambda trainer: trainer.evaluate())
    ((_, row),) = run.rows
    assert run.shown(names.RL_EVAL_REWARD) == pytest.approx(row["eval_reward"])
    assert run.shown(names.SFT_EVAL_LOSS) is None


def test_rollouts_of_an_evaluation_within_a_step_are_not_of_the_step(tiny_model: str, tokenizer: Any) -> None:
    class EvaluatesAmidst(TrainerCallback):
        def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            book.trainer.evaluate()

    book = Book()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, [*callbacks, EvaluatesAmidst()], book=book))
    assert any(not scoring.training for scoring in book.scorings)
    expected.check_rl_steps(run, book, REWARDS, tokenizer)


# -- reward functions of every kind


def same(values: list[float | None], name: str = "same") -> Any:
    """A reward function that gives these scores to every group."""

    def function(completions: list[str], **_: Any) -> list[float | None]:
        return (values * len(completions))[: len(completions)]

    function.__name__ = name
    return function


def test_terms_keep_apart_whatever_their_functions_are_called(tiny_model: str, tokenizer: Any) -> None:
    rewards = {
        letters: 0.0,
        same([0.5, -1.0], "twice"): 1.5,
        same([0.25, 1.0, None], "twice"): -0.5,
        same([0.1], "total"): 1.0,
        same([1.0, 0.0, 0.0], "<lambda>"): 1.0,
        same([None], "never"): 1.0,
        same([2.0], "a/mean b\u00e9"): 0.1,
    }
    book = Book()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, rewards=rewards, max_steps=3))
    labels = ["letters", "twice", "twice#2", "total#2", "<lambda>", "never", "a/mean b\u00e9"]
    expected.check_rl_steps(run, book, rewards, tokenizer, labels=labels)


def test_functions_without_a_weight_weigh_one(tiny_model: str, tokenizer: Any) -> None:
    book, rewards = Book(), dict.fromkeys(REWARDS, 1.0)
    run = exported_run(
        lambda callbacks: online(
            "GRPO", tiny_model, callbacks, book=book, rewards=rewards, reward_weights=None, max_steps=2
        )
    )
    expected.check_rl_steps(run, book, rewards, tokenizer)


def test_a_model_that_scores_is_a_term_by_its_name(tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: online(
            "GRPO",
            tiny_model,
            callbacks,
            trainer={"reward_funcs": [tiny_model], "reward_processing_classes": [tiny.tokenizer()]},
            reward_weights=[0.5],
            max_steps=2,
        )
    )
    name = Path(tiny_model).name
    for step in run.steps:
        row = run.row(step)
        term = 0.5 * row[f"rewards/{name}/mean"]
        assert run.figures(step)[names.RL_STEP_REWARD_TERM.name] == pytest.approx({name: term, "total": term}, rel=1e-5)
        assert run.shown(names.RL_STEP_ROLLOUTS, step) == 8


def test_rollouts_that_nothing_scored_are_left_out(tiny_model: str, tokenizer: Any) -> None:
    rewards = {same([None, 1.0, 0.0, 0.0]): 1.0, same([None, None, 0.5, 0.0], "other"): 1.0}
    book = Book()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, rewards=rewards, max_steps=2))
    expected.check_rl_steps(run, book, rewards, tokenizer)
    assert run.shown(names.RL_STEP_ROLLOUTS, 1) == 6
    assert run.shown(names.RL_STEP_REWARD_ZERO_RATIO, 1) == pytest.approx(1 / 3)


def test_a_step_that_nothing_scored_has_no_reward(tiny_model: str, tokenizer: Any) -> None:
    def at_first(trainer_state: Any, completions: list[str], **_: Any) -> list[float | None]:
        return [0.5 if trainer_state.global_step == 0 else None] * len(completions)

    rewards = {at_first: 1.0}
    book = Book()
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, book=book, rewards=rewards, max_steps=2))
    expected.check_rl_steps(run, book, rewards, tokenizer)
    assert run.shown(names.RL_STEP_REWARD, 1) == 0.5
    assert run.shown(names.RL_STEP_REWARD, 2) is None
    assert run.shown(names.RL_STEP_ROLLOUTS, 2) == 0


class Breaks(TrainerCallback):
    """Makes the gradients NaN from the second step on."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            model.get_input_embeddings().weight.register_hook(lambda gradient: gradient * float("nan"))


def test_what_is_not_finite_is_counted_not_shown(tiny_model: str) -> None:
    def at_last(trainer_state: Any, completions: list[str], **_: Any) -> list[float]:
        return [float("inf") if trainer_state.global_step == 1 else 1.0, *range(len(completions) - 1)]

    run = exported_run(
        lambda callbacks: online(
            "GRPO", tiny_model, [*callbacks, Breaks()], rewards={at_last: 1.0, letters: 1.0}, max_steps=2
        )
    )
    norm, rewards = names.RL_STEP_GRAD_NORM.name, names.RL_ROLLOUT_REWARD.name
    total = names.RlTerm.TOTAL
    loss = names.RL_STEP_LOSS.name
    from_zero = {(loss,): 0, (norm,): 0, (names.RL_STEP_REWARD.name,): 0, (rewards, total): 0}
    broken = int(run.shown(names.RL_STEP_LOSS, 2) is None)  # newer versions of TRL keep the loss finite
    assert nonfinite(run, 1) == from_zero
    assert nonfinite(run, 2) == from_zero | {(loss,): broken, (norm,): 1, (rewards, total): 1, (rewards, "at_last"): 1}
    assert run.shown(names.RL_STEP_GRAD_NORM, 1) is not None
    assert run.shown(names.RL_STEP_GRAD_NORM, 2) is None
    assert run.shown(names.RL_STEP_ROLLOUTS, 2) == 7, "a rollout whose score is no number was not scored"
    assert run.shown(names.RL_STEP_REWARD_TERM, 2, "at_last") == statistics.mean(range(7))
    rollouts = [run.histogram(names.RL_ROLLOUT_REWARD, 2, term) for term in ("at_last", "letters", total)]
    assert [histogram.count for histogram in rollouts if histogram] == [15, 15, 15]


def nonfinite(run: Run, step: int) -> dict[tuple[str, ...], float]:
    """What was counted, by metric and term."""
    keys = names.ATTR_TELEMETRY_METRIC.name, names.ATTR_RL_TERM.name
    return {
        tuple(point.attributes[key] for key in keys if key in point.attributes): point.value
        for point in run.points(step)
        if point.name == names.TELEMETRY_NONFINITE.name
    }


def test_weights_that_change_while_training_count_from_then_on(tiny_model: str) -> None:
    class Schedule(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            book.trainer.reward_weights = torch.tensor([float(state.global_step), 1.0])

    book, rewards = Book(), {same([1.0]): 1.0, letters: 1.0}
    run = exported_run(
        lambda callbacks: online("GRPO", tiny_model, [*callbacks, Schedule()], book=book, rewards=rewards, max_steps=3)
    )
    assert [run.shown(names.RL_STEP_REWARD_TERM, step, "same") for step in run.steps] == [0.0, 1.0, 2.0]


# -- other ways to train


def test_lora(tiny_model: str, tokenizer: Any) -> None:
    from peft import LoraConfig

    book = Book()
    run = exported_run(
        lambda callbacks: online(
            "GRPO", tiny_model, callbacks, book=book, trainer={"peft_config": LoraConfig(r=3)}, beta=0.1
        )
    )
    expected.check_rl_steps(run, book, REWARDS, tokenizer)
    assert {point.resource[names.ATTR_RUN_LORA_RANK.name] for point in run.points()} == {3}


def test_conversations(tiny_model: str, tokenizer: Any) -> None:
    book = Book()
    run = exported_run(
        lambda callbacks: online(
            "GRPO", tiny_model, callbacks, book=book, trainer={"train_dataset": tiny.prompts(16, conversational=True)}
        )
    )
    for scoring in book.scorings:
        scoring.prompts[:] = [
            tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            for turns in scoring.prompts
        ]
    expected.check_rl_steps(run, book, REWARDS, tokenizer)


class Timed(trl.GRPOTrainer):
    """A user's own trainer. It measures what the phases should be, from within them, and takes its time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.measured: dict[tuple[str, int], float] = {}

    def _measure(self, phase: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = call(*args, **kwargs)
        time.sleep(0.05)
        key = phase, self.state.global_step + 1
        if self.model.training:
            self.measured[key] = self.measured.get(key, 0) + time.perf_counter() - begin
        return result

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        return self._measure("gen", super()._generate, *args, **kwargs)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
        return self._measure("reward", super()._calculate_rewards, *args, **kwargs)


def test_phases_of_a_subclass(tiny_model: str, tokenizer: Any) -> None:
    book = Book()
    run = exported_run(
        lambda callbacks: online(
            "GRPO",
            tiny_model,
            callbacks,
            book=book,
            trainer_class=Timed,
            steps_per_generation=1,
            eval_strategy="steps",
            eval_steps=2,
            max_steps=3,
        ),
        protocol="grpc",
        keep_trainer=True,
    )
    expected.check_rl_steps(run, book, REWARDS, tokenizer)
    assert {transport for transport, _, _ in run.sink.requests} == {"grpc"}
    assert {point.resource[names.ATTR_RUN_METHOD.name] for point in run.points()} == {"GRPO"}
    for step in run.steps:
        for phase in ("gen", "reward"):
            inner = run.trainer.measured[phase, step]
            assert inner >= 0.1, "two generations of 50 ms each"
            assert inner <= run.shown(names.RL_STEP_TIMING, step, phase) < inner + 0.05
