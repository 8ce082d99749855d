"""The reinforcement loop: GRPO, RLOO and their subclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from akka_otel_callbacks.common.graders.figures import no_failures
from akka_otel_callbacks.common.recording.rewards import distinct
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.trl.loop import Loop, TranslatedStep, is_scalar
from akka_otel_callbacks.trl.rl_capture import RLCapture, Setting
from akka_otel_callbacks.trl.scoring import REGION, Scorings, tap_regions
from akka_otel_callbacks.trl.taps import Arguments, argument
from akka_otel_callbacks.trl.vocabulary import is_read_of_rl, rl_step

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

LOSSES_THAT_ADD_UP = ("cispo", "dapo", "vespo")
"""Loss types that TRL normalizes by the tokens of the whole step, so that the losses of its micro-batches add up to the
step's. With all others the step's loss is their mean."""
COMPLETION_IDS_ARGUMENT = 4, "completion_ids_list"


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
