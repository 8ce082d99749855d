"""Whole GRPO and RLOO trainings: every figure of every step against the rollouts and the trainer's own log."""

from __future__ import annotations

from typing import Any

import pytest
import trl
from packaging.version import Version

from akka_otel_callbacks.common import names
from tests.support import tiny
from tests.trl import expected
from tests.trl.runs import exported_run
from tests.trl.trainings import REWARDS, TRL, Book, online

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
