"""Rows of a TRL log as steps, through TRL's own tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from akka_otel_callbacks.replay.log import Row
from akka_otel_callbacks.trl.log_rows import LogRows
from akka_otel_callbacks.trl.vocabulary import (
    is_evaluation,
    is_summary,
    rl_evaluation,
    rl_step,
    set_logged_rewards,
    sft_evaluation,
    sft_step,
)

OF_RL = ("reward", "frac_reward_zero_std", "eval_reward")
OF_EARLY_RL = "objective/"
"""Before a figure of trainers such as PPO and OnlineDPO, which log no mean of reward functions."""
TOKENS, EPOCH = "num_tokens", "epoch"
CLOSE = 1e-3
"""How near the terms' sum must be to the reward for their weights to be 1, of its size: both are means."""


def completes(row: Row) -> bool:
    """Whether the row is of the training and has a figure that is known."""
    if is_evaluation(row.values) or is_summary(row.values):
        return False
    return _has_figures(rl_step(row.values)) or _has_figures(sft_step(row.values))


def kind(rows: Iterable[Row]) -> type[Step]:
    """Which kind of training it was. A preference trainer, whose rewards are no functions, counts as the other kind."""
    return RLStep if any(_is_of_rl(row.values) for row in rows) else SFTStep


def steps(rows: Iterable[Row], step_type: type[Step]) -> Iterator[tuple[Row, Step]]:
    """Each row that has figures, with them. A step has its number; anything else is an amendment."""
    rows = [*rows]
    trained = [row for row in rows if completes(row)]
    weights_are_known = step_type is SFTStep or _weights_are_one(trained)
    losses = [number(row.values.get("loss")) for row in trained]
    filter_was_on = all(loss is None or math.isfinite(loss) for loss in losses)
    log = LogRows(rl_step if step_type is RLStep else sft_step, everything=True, nan_filter=filter_was_on)
    tokens = _Tokens()
    for row in rows:
        if is_evaluation(row.values):
            yield row, rl_evaluation(row.values) if step_type is RLStep else sft_evaluation(row.values)
        elif completes(row):
            log.follow(step_type(number=row.number))
            step = log.addition(row.values, row.number)
            assert step is not None
            step.number, step.epoch = row.number, number(row.values.get(EPOCH))
            step.tokens = tokens.of(row)
            if isinstance(step, RLStep) and not weights_are_known:
                step.reward_term, step.reward_term_std = _total(step.reward_term), _total(step.reward_term_std)
            yield row, step


class _Tokens:
    """Tokens of a step, of which TRL logs the sum since the run, or its restored part, began."""

    def __init__(self) -> None:
        self._number, self._sum = 0, 0.0

    def of(self, row: Row) -> float | None:
        """The tokens of the row's step. None if the row has none, or is not of one step alone."""
        total, before = number(row.values.get(TOKENS)), self._sum
        follows, self._number = row.number == self._number + 1, row.number
        if total is None:
            self._number = -1
            return None
        self._sum = total
        return total - before if follows and total > before else None


def _is_of_rl(values: Mapping[str, Any]) -> bool:
    if any(key in values for key in OF_RL) or any(str(key).startswith(OF_EARLY_RL) for key in values):
        return True
    return any(name != names.RlTerm.TOTAL for name in (rl_step(values).reward_term or {}))


def _has_figures(step: Step) -> bool:
    return any(getattr(step, field.name) not in (None, {}) for field in fields(step))


def _weights_are_one(rows: Sequence[Row]) -> bool:
    """Whether the terms of any row add up to its reward. Other weights are not in a log, and a term is its weighted
    share."""
    sums = [found for row in rows if (found := _reward_and_sum(row.values)) is not None]
    return any(math.isclose(reward, terms, rel_tol=CLOSE) for reward, terms in sums) or not sums


def _total(terms: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (terms or {}).items() if name == names.RlTerm.TOTAL}


def _reward_and_sum(values: Mapping[str, Any]) -> tuple[float, float] | None:
    """The reward of a row and the sum of its terms. None where they prove nothing: without a reward, or with terms that
    are all 0."""
    step = RLStep()
    set_logged_rewards(step, values, {})
    terms = (step.reward_term or {}).items()
    shares = [share for name, share in terms if name != names.RlTerm.TOTAL and share is not None]
    return (step.reward, sum(shares)) if step.reward and any(shares) else None
