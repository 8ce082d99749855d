"""A step of the reinforcement loop, as the training thread saw it, and how it becomes figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import truediv
from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.figures import set_graders
from akka_otel_callbacks.common.numbers import are_finite
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.rewards import ScoredRollouts, set_rewards
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl.captures import StepCapture
from akka_otel_callbacks.trl.efficiency import Positions
from akka_otel_callbacks.trl.micro_batches import counted
from akka_otel_callbacks.trl.scoring import Batch, calls_of, values_held
from akka_otel_callbacks.trl.vocabulary import RATIOS, TOKENS, set_logged_rewards, update_step

Phase = names.RlStepPhase


class Trained(NamedTuple):
    """The inputs of one micro-batch of an update. They are counted later, on a thread that nothing waits for."""

    prompts: Any
    """Token IDs [rollouts, positions]."""
    mask: Any
    """The mask of the completions' tokens [rollouts, positions]."""
    own: Any
    """The mask of the tokens that the model generated itself, if there are tools."""

    def is_known(self) -> bool:
        """Whether the inputs have the form that TRL gives them."""
        masks = self.mask if self.own is None else self.own
        return all(hasattr(tensor, "numel") for tensor in (self.prompts, self.mask, masks))

    def tokens(self) -> Any:
        """The number of tokens that the loss counts."""
        return (self.mask if self.own is None else self.mask * self.own).count_nonzero()  # half of what a sum takes


@dataclass(frozen=True, slots=True)
class Setting:
    """What is the same for every step of a training of this kind."""

    by_sequence: bool
    """Whether there is one probability ratio for a sequence, and not one for each of its tokens."""
    losses_add_up: bool
    terms: Sequence[str]
    weights: Mapping[str, float]
    group: int | None


@dataclass(slots=True)
class RLCapture(StepCapture):
    """One step as the training thread saw it."""

    setting: Setting = field(kw_only=True)
    batches: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """For each micro-batch, the fields of a `Trained`. A plain tuple takes the training thread a tenth of the time."""
    # A step has mostly one scoring. Lists would be three pieces of memory more that wait with the step.
    lengths: Sequence[int] = ()
    """Own tokens of each completion."""
    scores: tuple[tuple[Any, Any], ...] = ()
    """For each scoring, a tensor [rollouts, terms] of unweighted scores, NaN for none, and the weights [terms] at that
    moment."""
    graded: tuple[Batch, ...] = ()
    """For each scoring, the calls of the reward functions."""
    accumulated: float = 1
    """How many micro-batches a loss is divided by."""
    cut: Sequence[float] = ()
    """The same for each micro-batch before `begin`, if an epoch ended within the step's accumulation."""
    generation_s: float | None = None
    reward_s: float | None = None
    timed: bool = True
    """Whether generation can be told from the update. TRL before 0.24 has no method that generates."""
    tokens: int = 0

    @property
    def values_held(self) -> int:
        """How much the capture holds, in Python numbers. Such a number takes about the memory of four positions of a
        mask."""
        held = positions(self._updated()).tokens // 4
        for graded in self.graded:
            held += values_held(graded)
        return len(self.lengths) * (1 + len(self.setting.terms)) + held

    def deliver(self, recorder: Recorder) -> None:
        given, updated, values = self._scores(), self._updated(), self.values()
        step = self.complete(update_step(values, self._counts(updated)))
        losses = values.get("policy_loss")
        if isinstance(losses, list) and self.setting.losses_add_up:
            step.policy_loss = sum(losses)
        elif isinstance(losses, list) and len(losses) == len(updated) and self.accumulated:
            step.policy_loss = self._mean_loss(losses)
        step.timing_s = phases(step.duration_s if self.timed else None, self.generation_s, self.reward_s)
        self.set_mfu(step, positions(updated), step.timing_s[Phase.UPDATE_ACTOR])
        if given:
            # By column: a list for each of thousands of rows would have Python's garbage collector run.
            scorings = [(_list(scores.T), _list(weights)) for scores, weights in given]
            set_rewards(step, scored(scorings, self.setting.terms, self.setting.group))
        else:
            set_logged_rewards(step, values, self.setting.weights)
        set_graders(step, [call for batch in self.graded for call in calls_of(batch)])
        step.rollout_completion_length = self.lengths
        self.set_tokens(step, self.tokens)  # a step that trains on rollouts of an earlier one generates none
        self.record(step, recorder)

    def _scores(self) -> list[tuple[Any, Any]]:
        """The scores that have the form that TRL gives them. In place of any others, the figures of the log stay."""
        form = (len(self.setting.terms),)
        return [(scores, weights) for scores, weights in self.scores if getattr(scores, "shape", ())[1:] == form]

    def _updated(self) -> list[Trained]:
        """The micro-batches. Empty if one of them is missing or has an unknown form: then no figure is computed from
        them."""
        batches = [*map(Trained._make, self.batches)]
        return batches if len(batches) >= len(self.losses) and all(batch.is_known() for batch in batches) else []

    def _mean_loss(self, losses: Sequence[float]) -> float:
        """The step's loss, of those that transformers divides by the number of micro-batches."""
        cut = len(self.cut)
        before: float = sum(map(truediv, losses, self.cut))
        return before + sum(losses[cut:]) / self.accumulated

    def _counts(self, updated: Sequence[Trained]) -> dict[str, Sequence[float] | None]:
        """The weights of the micro-batches' figures. A single micro-batch needs none."""
        tokens = counted([batch.tokens() for batch in updated]) if self.job.alone and len(updated) > 1 else None
        if not self.setting.by_sequence:
            return {TOKENS: tokens, RATIOS: tokens}
        return {TOKENS: tokens, RATIOS: [len(batch.mask) for batch in updated]}


def _list(value: Any) -> Any:
    """A tensor's numbers. This waits for the tensor's device, so it happens on the translator's thread."""
    return value if isinstance(value, list) else value.tolist()


def phases(duration_s: float | None, generation_s: float | None, reward_s: float | None) -> dict[str, float | None]:
    """The time of generation, of scoring, and of the update, which is the rest of the step. What did not happen in this
    step has no time.

    Args:
        duration_s: the duration of the step. None if it is not known, or if generation is not known.
    """
    update_s = None if duration_s is None else duration_s - (generation_s or 0.0) - (reward_s or 0.0)
    return {Phase.GEN: generation_s, Phase.REWARD: reward_s, Phase.UPDATE_ACTOR: update_s}


def positions(updated: Iterable[Trained]) -> Positions:
    """The token positions of an update. Logits are needed for the completions only."""
    scored = sum(batch.mask.numel() for batch in updated)
    return Positions(sum(batch.prompts.numel() for batch in updated) + scored, scored)


def scored(
    scorings: Iterable[tuple[Iterable[Sequence[float]], Iterable[float]]], terms: Sequence[str], group: int | None
) -> ScoredRollouts:
    """The step's rollouts, from their unweighted scores. These mean the same in every version of TRL and with every
    scaling of rewards, unlike what is logged. A rollout's total is the sum of its weighted scores.

    Args:
        scorings: for each scoring, the scores [terms][rollouts], NaN for none, and the weights of the terms.
        terms: the terms' labels, by column.
        group: the number of rollouts of one prompt, which stand side by side. None if it is not known.
    """
    columns: list[list[float | None]] = [[] for _ in terms]
    for scores, weights in scorings:
        for column, given, weight in zip(columns, scores, weights, strict=False):
            column += _shares(given, weight)
    total: Any = sum if all(map(are_finite, columns)) else _total
    totals: list[float | None] = [*map(total, zip(*columns, strict=True))]
    return ScoredRollouts(
        totals=totals,
        terms=dict(zip(terms, columns, strict=True)),
        groups=[at // group for at in range(len(totals))] if group else None,
    )


def _shares(scores: Sequence[float], weight: float) -> list[float | None]:
    """One term's share in each rollout. None if it gave no score."""
    shares = [score * weight for score in scores]
    if math.isnan(sum(shares)):
        return [None if math.isnan(share) else share for share in shares]
    return shares  # type: ignore[return-value]


def _total(row: Sequence[float | None]) -> float | None:
    given = [share for share in row if share is not None]
    return sum(given) if given else None
