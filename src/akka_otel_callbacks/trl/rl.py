"""The reinforcement loop: GRPO, RLOO and their subclasses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import truediv
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from akka_otel_callbacks.common.graders.figures import no_failures, set_graders
from akka_otel_callbacks.common.numbers import are_finite
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.rewards import ScoredRollouts, distinct, set_rewards
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.trl.captures import StepCapture
from akka_otel_callbacks.trl.efficiency import Positions
from akka_otel_callbacks.trl.loop import Loop, TranslatedStep, is_scalar
from akka_otel_callbacks.trl.micro_batches import counted
from akka_otel_callbacks.trl.scoring import REGION, Batch, Scorings, calls_of, tap_regions, values_held
from akka_otel_callbacks.trl.taps import Arguments, argument
from akka_otel_callbacks.trl.vocabulary import (
    RATIOS,
    TOKENS,
    is_read_of_rl,
    rl_step,
    set_logged_rewards,
    update_step,
)

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

Phase = names.RlStepPhase
LOSSES_THAT_ADD_UP = ("cispo", "dapo", "vespo")
"""Loss types that TRL normalizes by the tokens of the whole step, so that the losses of its micro-batches add up to the
step's. With all others the step's loss is their mean."""
COMPLETION_IDS_ARGUMENT = 4, "completion_ids_list"


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


class RLLoop(Loop[RLCapture]):
    step_type = RLStep
    _is_read = staticmethod(is_read_of_rl)
    gives: ClassVar = {
        "_generate": (names.RL_ROLLOUT_COMPLETION_LENGTH, names.RL_STEP_TIMING),
        "_calculate_rewards": (names.RL_ROLLOUT_REWARD, names.RL_STEP_ROLLOUTS, names.RL_STEP_REWARD_ZERO_RATIO),
        "compute_loss": (names.RL_STEP_MFU,),
        "training_step": (names.RL_STEP_LOSS,),
        "_get_grad_norm": (names.RL_STEP_GRAD_NORM,),
    }

    def __init__(self, trainer: Trainer | None, args: TrainingArguments, state: TrainerState, **options: Any) -> None:
        super().__init__(trainer, args, state, **options)
        self._tokens_seen = self._tokens_at_begin = state.num_input_tokens_seen
        self._terms = distinct(getattr(trainer, "reward_func_names", None) or [])
        weights = getattr(args, "reward_weights", None) or [1.0] * len(self._terms)
        self._setting = Setting(
            # Of GRPO a setting; RLOO has it so, without one.
            by_sequence=getattr(args, "importance_sampling_level", "sequence") == "sequence",
            losses_add_up=getattr(args, "loss_type", None) in LOSSES_THAT_ADD_UP,
            terms=self._terms,
            weights=dict(zip(self._terms, weights, strict=False)),
            group=getattr(trainer, "num_generations", None),
        )
        self._scorings = Scorings(trainer, self._terms)
        for term in sorted(self._scorings.own_terms()):  # a failure in the first step is an increase, too
            self._emit(TranslatedStep(RLStep(grader_failures=no_failures(term))))
        if not tap_regions():
            self.missing.append(REGION)
        self._wrap(trainer, "_calculate_rewards", self._rewarded, before=self._scorings.begin)
        self._wrap_often(trainer, "compute_loss", self._trained)
        begin_generation = self._memory.begin_generation if self._memory.has_parts else None
        self._has_own_lengths = self._wrap(trainer, "_generate", self._completed, before=begin_generation)
        self.step = self._begun(None)

    def unused(self, state: TrainerState) -> dict[str, tuple[Metric, ...]]:
        found = super().unused(state)
        if state.num_input_tokens_seen == self._tokens_at_begin:
            found["num_input_tokens_seen"] = names.RL_STEP_TOKENS, names.RL_STEP_THROUGHPUT
        if "_metrics" not in self.missing and not self._keeps("entropy"):
            found["_metrics' entropy"] = (names.RL_STEP_ENTROPY,)
        is_scoring = "_calculate_rewards" not in (*self.missing, *self._listener.uncalled)
        if is_scoring and REGION not in self.missing and not self._scorings.heard:
            found[REGION] = (names.RL_GRADER_DURATION,)
        return found

    def _begun(self, now: float | None) -> RLCapture:
        return RLCapture(self._job, [], now, setting=self._setting)

    def epoch_ended(self) -> None:
        super().epoch_ended()
        if self._in_step:
            step = self.step
            since = len(step.batches) - len(step.cut)
            # At the end of a stream it is 0. The last micro-batches were fetched together.
            step.cut = [*step.cut, *[self._accumulated() or since] * since]

    def _ended(self, state: TrainerState) -> None:
        if not self.step.batches:
            self._tap_again("compute_loss")
        seen = state.num_input_tokens_seen
        self.step.tokens, self._tokens_seen = seen - self._tokens_seen, seen
        self.step.accumulated = self._accumulated()
        self.step.timed = self._has_own_lengths and "_generate" not in self._listener.uncalled

    def _accumulated(self) -> float:
        """How many micro-batches a loss is divided by now. Hosts have loops of their own, which may not say it."""
        return getattr(self._trainer_ref(), "current_gradient_accumulation_steps", 1)

    def _translated(self, values: Mapping[str, Any]) -> RLStep:
        return rl_step(values, self._setting.weights)

    def close(self) -> None:
        self._scorings.end(0)

    def _row_can_add(self) -> bool:
        """A step of this kind has mostly the loss, the norm and the learning rate by itself, which are all that a row
        could add."""
        step = self.step
        has_loss = self._job.alone and bool(step.losses)
        return self._rows.everything or not (has_loss and is_scalar(step.grad_norm) and is_scalar(step.learning_rate))

    def _completed(self, result: Any, args: Arguments, seconds: float) -> None:
        if self._memory.has_parts:
            self._memory.end_generation()
        if self.in_training():
            step = self.step
            step.generation_s = (step.generation_s or 0.0) + seconds
            lengths = own_lengths(result)
            step.lengths = [*step.lengths, *lengths] if step.lengths else lengths

    def _trained(self, loss: Any, args: Arguments) -> None:
        """Notes one micro-batch of the update: `compute_loss(self, model, inputs)`."""
        positional, named = args
        try:
            if not self._in_step or not positional[0].model.training:
                return
            inputs: Any = positional[2] if len(positional) > 2 else named["inputs"]
            self.step.batches.append((inputs["prompt_ids"], inputs["completion_mask"], inputs.get("tool_mask")))
        except (LookupError, TypeError):  # not what TRL is known to hand over
            return

    def _rewarded(self, result: Any, args: Arguments, seconds: float) -> None:
        """Notes one scoring: `_calculate_rewards(self, inputs, prompts, completions, completion_ids_list)`."""
        positional, named = args
        prompts = positional[2] if len(positional) > 2 else named.get("prompts")  # `argument` takes twice the time
        graded = self._scorings.end(len(prompts) if prompts else 0)
        trainer = self._trainer_ref()
        if trainer is None or not trainer.model.training:
            return
        step = self.step
        step.graded += (graded,)
        step.reward_s = (step.reward_s or 0.0) + seconds
        weights = getattr(trainer, "reward_weights", None)  # read anew: a schedule may change them
        if weights is None:
            weights = [1.0] * len(self._terms)
        elif weights.is_cpu:
            weights = weights.tolist()
        step.scores += ((result, weights),)
        if not self._has_own_lengths:  # before TRL 0.24
            step.lengths = [*step.lengths, *map(len, argument(args, *COMPLETION_IDS_ARGUMENT) or ())]


def _list(value: Any) -> Any:
    """A tensor's numbers. This waits for the tensor's device, so it happens on the translator's thread."""
    return value if isinstance(value, list) else value.tolist()


def own_lengths(result: Any) -> list[int]:
    """Tokens that the model generated in each completion, from what TRL's `_generate` returns: prompt IDs, completion
    IDs, and with tools a mask per completion that is 1 on the model's own tokens. The tuple's length changes with the
    version, so the mask is known by its form. Empty for a result of another form: OnlineDPO returns padded tensors,
    among them the prompts' masks."""
    completions = result[1] if isinstance(result, (tuple, list)) and len(result) > 1 else None
    if not isinstance(completions, list) or not completions or type(completions[0]) is not list:
        return []
    mask: Any = result[2] if len(result) > 2 else None
    if _is_mask(mask, completions):
        return [own.count(1) for own in mask]
    return [*map(len, completions)]


def _is_mask(mask: Any, completions: Sequence[Any]) -> bool:
    if not isinstance(mask, list) or len(mask) != len(completions) or not all(isinstance(own, list) for own in mask):
        return False
    return all(len(own) == len(ids) for own, ids in zip(mask, completions, strict=True)) and all(
        flag in (0, 1) for own in mask for flag in own[:1]
    )


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
