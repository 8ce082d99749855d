"""The supervised loop: SFT, and what a trainer of another kind (DPO, reward …) shares with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recorder import Recorder
from akka_otel_callbacks.common.step import SFTStep
from akka_otel_callbacks.trl.dataset_rows import row_capture
from akka_otel_callbacks.trl.efficiency import Positions
from akka_otel_callbacks.trl.loop import Loop, StepCapture
from akka_otel_callbacks.trl.vocabulary import sft_step

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

Phase = names.SftStepPhase


@dataclass(slots=True, kw_only=True)
class SFTCapture(StepCapture):
    """One update as the training thread saw it."""

    input_s: float | None
    losses: list[Any]
    """The micro-batches' losses, already scaled so that their sum is the update's loss."""
    masks: list[tuple[int, Any]]
    """Per micro-batch with an attention mask: its token positions, and how many of them hold a token."""
    tokens: float

    def deliver(self, recorder: Recorder) -> None:
        step = self.complete(sft_step(self.values))
        step.timing_s = {
            Phase.INPUT: self.input_s,
            Phase.FORWARD_BACKWARD: self.clock.forward_backward_s(),
            Phase.OPTIMIZER: self.clock.optimizer_s(),
            Phase.STEP: step.duration_s,
        }
        if self.losses:
            step.loss = total(self.losses)
        step.padding = padding(self.masks)
        self.set_tokens(step, self.tokens)
        self.set_mfu(step, step.duration_s)
        recorder.record(step)


class SFTLoop(Loop):
    step_type = SFTStep

    def __init__(self, trainer: Trainer | None, args: TrainingArguments, state: TrainerState, **options: Any) -> None:
        super().__init__(trainer, args, state, **options)
        self._input_s: float | None = None
        self._losses: list[Any] = []
        self._masks: list[tuple[int, Any]] = []
        self._tokens_seen = float(getattr(trainer, "_total_train_tokens", 0) or 0)
        self._fetches_skipped_batches = state.global_step > 0
        self._packed = bool(getattr(args, "packing", False))
        self._wrap(trainer, "get_batch_samples", self._fetched)
        # With several processes the loss of this rank's batches is not the step's loss. The trainer's log gathers it.
        if args.world_size > 1 or not self._wrap(trainer, "training_step", self._trained):
            self._from_rows.add("loss")
        if trainer is not None and (rows := row_capture(trainer, args)) is not None:
            self._emit(rows)

    def begin_step(self) -> None:
        super().begin_step()
        self._losses = []

    def _captured(self, state: TrainerState) -> SFTCapture:
        common = self._common(state)
        capture = SFTCapture(
            **common,
            input_s=self._input_s,
            losses=self._losses,
            masks=self._masks,
            tokens=self._new_tokens(common["values"]),
        )
        self._input_s, self._masks, self._positions = None, [], Positions()
        return capture

    def _translated(self, values: Mapping[str, Any]) -> SFTStep:
        return sft_step(values)

    def _new_tokens(self, values: Mapping[str, Any]) -> float:
        """TRL's running total, gathered over all processes, less what it was at the step before."""
        counted = number((values.get("num_tokens") or [None])[-1]) if not self.log_only else None
        if counted is None:
            return 0.0
        new, self._tokens_seen = counted - self._tokens_seen, counted
        return new

    def _fetched(self, result: Any, args: tuple[Any, ...], seconds: float) -> None:
        if self._fetches_skipped_batches:  # the first fetch after a resume loads what the resume skips, too
            self._fetches_skipped_batches = False
        else:
            self._input_s = (self._input_s or 0.0) + seconds
        for batch in result[0]:
            if "input_ids" in batch:
                positions = batch["input_ids"].numel()
                self._positions.add(positions, positions)
            mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
            if mask is not None and not self._packed:
                self._masks.append((mask.numel(), mask.sum()))  # on a device this only queues the sum

    def _trained(self, loss: Any, args: tuple[Any, ...], seconds: float) -> None:
        self._losses.append(loss)


def total(losses: list[Any]) -> float | None:
    """The sum, None where one of them is no number."""
    found = [number(loss) for loss in losses]
    return sum(loss for loss in found if loss is not None) if None not in found else None


def padding(masks: list[tuple[int, Any]]) -> float | None:
    """The share of token positions that hold no token. None without masks."""
    positions = sum(count for count, _ in masks)
    held = [number(tokens) for _, tokens in masks]
    if not positions or None in held:
        return None
    return 1.0 - sum(count for count in held if count is not None) / positions
