"""The supervised loop: SFT, and what a trainer of another kind (DPO, reward …) shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import SFTStep
from akka_otel_callbacks.trl.captures import StepCapture
from akka_otel_callbacks.trl.dataset_rows import row_capture
from akka_otel_callbacks.trl.efficiency import Positions
from akka_otel_callbacks.trl.loop import Loop
from akka_otel_callbacks.trl.micro_batches import MicroBatch, are_counted, counted, micro_batch, padding, unpadded
from akka_otel_callbacks.trl.taps import Arguments
from akka_otel_callbacks.trl.vocabulary import NUM_TOKENS, is_read_of_sft, sft_step

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

Phase = names.SftStepPhase


@dataclass(slots=True)
class SFTCapture(StepCapture):
    """One update as the training thread saw it."""

    packed: bool = False
    input_s: float | None = None
    batches: Sequence[MicroBatch] = ()
    tokens: float = 0.0

    def deliver(self, recorder: Recorder) -> None:
        labels = counted([batch.labels for batch in self.batches]) if self.job.alone else None
        step = self.complete(sft_step(self.values(), labels))
        step.timing_s = {
            Phase.INPUT: self.input_s,
            Phase.FORWARD_BACKWARD: self.forward_backward_s(),
            Phase.OPTIMIZER: self.optimizer_s(),
            Phase.STEP: step.duration_s,
        }
        if not self.packed:
            step.padding = padding(self.batches)
        self.set_tokens(step, self._tokens())
        positions = sum(batch.positions for batch in self.batches)
        self.set_mfu(step, Positions(positions, positions), step.duration_s)
        self.record(step, recorder)

    def _tokens(self) -> float:
        """The tokens of the step, as TRL counts them over all processes. Trainers of some hosts do not count them. Then
        it is the count of the attention masks, if the process trains alone."""
        if self.tokens:
            return self.tokens if are_counted(self.batches) else 0.0
        return (unpadded(self.batches) or 0.0) if self.job.alone else 0.0


class SFTLoop(Loop[SFTCapture]):
    step_type = SFTStep
    _is_read = staticmethod(is_read_of_sft)
    gives: ClassVar = {
        "get_batch_samples": (names.SFT_STEP_PADDING, names.SFT_STEP_TIMING, names.SFT_STEP_MFU),
        "training_step": (names.SFT_STEP_LOSS,),
        "_get_grad_norm": (names.SFT_STEP_GRAD_NORM,),
    }

    def __init__(self, trainer: Trainer | None, args: TrainingArguments, state: TrainerState, **options: Any) -> None:
        super().__init__(trainer, args, state, **options)
        self._input_s: float | None = None
        self._fetched_batches: list[MicroBatch] = []
        self._batches: list[MicroBatch] = []
        self._tokens_seen = float(getattr(trainer, "_total_train_tokens", 0) or 0)
        self._fetches_skipped_batches = state.global_step > 0
        self._packed = bool(getattr(args, "packing", False))
        self._wrap(trainer, "get_batch_samples", self._fetched)
        self._sees_training = "training_step" not in self.missing
        if trainer is not None and (rows := row_capture(trainer, args)) is not None:
            self._emit(rows)
        self.step = self._begun(None)

    def _begun(self, now: float | None) -> SFTCapture:
        return SFTCapture(self._job, [], now, packed=self._packed)

    def _ended(self, state: TrainerState) -> None:
        self.step.tokens = self._new_tokens()
        self.step.input_s, self._input_s = self._input_s, None  # the batches are fetched before the step begins
        self.step.batches, self._batches = self._batches, []

    def _translated(self, values: Mapping[str, Any]) -> SFTStep:
        return sft_step(values)

    def _new_tokens(self) -> float:
        """The tokens since the step before, by TRL's running total over all processes."""
        keys, lists, _ = self._marks[-1]
        totals = lists[keys.index(NUM_TOKENS)] if NUM_TOKENS in keys else None
        counted = number(totals[-1]) if isinstance(totals, list) and totals else None
        if counted is None:
            return 0.0
        new, self._tokens_seen = counted - self._tokens_seen, counted
        return new

    def _fetched(self, result: Any, args: Arguments, seconds: float) -> None:
        if self._fetches_skipped_batches:  # the first fetch after a resume loads what the resume skips, too
            self._fetches_skipped_batches = False
        else:
            self._input_s = (self._input_s or 0.0) + seconds
        self._fetched_batches = [micro_batch(batch) for batch in result[0]]
        while self._fetched_batches and not self._sees_training:
            self._take_batch()

    def _stepped(self, loss: Any, args: Arguments) -> None:
        super()._stepped(loss, args)
        if self._fetched_batches:
            self._take_batch()

    def _take_batch(self) -> None:
        """Counts the next fetched batch as trained on. If a callback ends an epoch within an accumulation, some batches
        are never trained on."""
        self._batches.append(self._fetched_batches.pop(0))
