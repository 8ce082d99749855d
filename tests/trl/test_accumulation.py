"""Steps of several micro-batches: a figure is of all their tokens, also where an epoch ends within the accumulation.

Of a streamed dataset transformers does not know the length. Where it ends within an accumulation, the gradient of the
micro-batches so far is kept, and the next epoch's are added to it: they are one step's.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import trl
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from tests.support import tiny
from tests.trl import expected
from tests.trl.expected import Batches, check_sft_steps
from tests.trl.runs import Run, exported_run, plain_run
from tests.trl.trainings import REWARDS, TRL, Book, online, sft

STREAMED = {"train_dataset": tiny.texts(12).to_iterable_dataset(), "eval_dataset": tiny.texts(4)}
"""Three micro-batches of four."""


@pytest.fixture(scope="module")
def logged_every_step(tiny_model: str) -> Run:
    return plain_run(lambda callbacks: sft(tiny_model, callbacks, trainer=STREAMED))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="every step logged"),
        pytest.param({"logging_strategy": "epoch"}, id="logged where an epoch ends, in the middle of a step"),
        pytest.param({"logging_strategy": "no"}, id="not logged"),
    ],
)
def test_a_streamed_sft_that_ends_within_an_accumulation(
    settings: dict[str, Any], tiny_model: str, logged_every_step: Run
) -> None:
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(sft(tiny_model, callbacks, trainer=STREAMED, **settings)), at_each_event=True
    )
    assert [len(batches.of_step[step]) for step in run.steps] == [2, 3, 3, 3], "the streamed epochs do not end amidst"
    check_sft_steps(run, batches, rows={step: logged_every_step.row(step) for step in run.steps}, total_rows=None)


class Slow(trl.SFTTrainer):
    """Takes its time for each micro-batch, and more for an evaluation."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(0.02)
        return super().training_step(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return super().evaluate(*args, **kwargs)


def test_the_time_of_such_a_step_is_that_of_all_its_micro_batches_and_of_nothing_between(tiny_model: str) -> None:
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(
            sft(tiny_model, callbacks, trainer=STREAMED, trainer_class=Slow, eval_strategy="epoch", max_steps=2)
        )
    )
    check_sft_steps(run, batches, total_rows=None)
    step = run.figures(2)[names.SFT_STEP_TIMING.name]
    assert step["step"] >= 3 * 0.02
    assert step["eval"] > 0


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def test_a_streamed_grpo_that_ends_within_an_accumulation(tiny_model: str, tokenizer: Any) -> None:
    book = Book()
    bonus = {"entropy_coef": 0.05, "loss_type": "bnpo"} if hasattr(trl.GRPOConfig, "entropy_coef") else {}

    def make(callbacks: list[TrainerCallback]) -> Any:
        return online(
            "GRPO",
            tiny_model,
            callbacks,
            book=book,
            trainer={"train_dataset": tiny.prompts(3).to_iterable_dataset()},
            steps_per_generation=1,
            **bonus,
        )

    try:
        make([])
    except NotImplementedError:
        pytest.skip(f"GRPO of TRL {TRL} takes no streamed dataset")
    run = exported_run(make)

    def without_bonus(row: dict[str, Any]) -> dict[str, Any]:
        updates = book.updates[next(step for step in run.steps if run.row(step) == row)]
        divided_by = [2, 2] if len(updates) == 2 else [1, 2, 2]  # the last one of an epoch is fetched alone
        shares = [update.values["entropy"] / by for update, by in zip(updates, divided_by, strict=True)]
        return {names.RL_STEP_POLICY_LOSS.name: {None: row["loss"] + 0.05 * sum(shares)}}

    more = without_bonus if bonus else lambda row: {}
    expected.check_rl_steps(run, book, REWARDS, tokenizer, streamed=True, more=more)
    assert [run.shown(names.RL_STEP_ROLLOUTS, step) for step in run.steps] == [8, 12, 12, 12]
    for step in run.steps:
        assert run.shown(names.RL_STEP_REWARD, step) == pytest.approx(run.row(step)["reward"], rel=1e-5)


class EndsEpoch(TrainerCallback):
    """Ends the epoch within the second step's accumulation, after its first micro-batch."""

    def __init__(self) -> None:
        self.done = False

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1 and not self.done:
            control.should_epoch_stop = self.done = True


def test_a_batch_that_was_fetched_and_not_trained_on_is_of_no_step(tiny_model: str) -> None:
    batches = Batches()
    two_steps = {"train_dataset": tiny.texts(16)}
    run = exported_run(
        lambda callbacks: batches.watch(sft(tiny_model, [*callbacks, EndsEpoch()], trainer=two_steps, max_steps=3))
    )
    assert [len(batches.of_step[step]) for step in run.steps] == [2, 3, 2]
    check_sft_steps(run, batches, total_rows=16)


# -- what TRL's figures are a mean over, by logits of the test's own


class Logits:
    """Each completion token's entropy in a training, by step, from the model's logits."""

    def __init__(self) -> None:
        self.entropies: dict[int, list[torch.Tensor]] = {}

    def watching(self, trainer_class: type[Any]) -> type[Any]:
        logits_of = self

        class Watching(trainer_class):  # type: ignore[misc]
            def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
                if self.model.training:
                    step = self.state.global_step + 1
                    logits_of.entropies.setdefault(step, []).append(entropies(model, inputs))
                return super().compute_loss(model, inputs, *args, **kwargs)

        return Watching

    def entropy(self, step: int) -> float:
        return float(torch.cat(self.entropies[step]).mean())


def entropies(model: Any, inputs: Any) -> torch.Tensor:
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    length = inputs["completion_ids"].shape[1]
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, -length - 1 : -1]
    own = torch.distributions.Categorical(logits=logits).entropy()
    return own[inputs["completion_mask"].bool()]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_entropy_is_that_of_the_steps_tokens(kind: str, tiny_model: str) -> None:
    logits = Logits()
    run = exported_run(
        lambda callbacks: online(
            kind, tiny_model, callbacks, trainer_class=logits.watching(getattr(trl, f"{kind}Trainer")), max_steps=3
        )
    )
    for step in run.steps:
        assert run.shown(names.RL_STEP_ENTROPY, step) == pytest.approx(logits.entropy(step), rel=1e-4)
    apart = [run.row(step)["entropy"] - logits.entropy(step) for step in run.steps]
    assert max(map(abs, apart)) > 1e-2, "the mean of the micro-batches' means would do as well"
