"""What every kind of step leaves on the training thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.memory.account import StepMemory
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.log_keys import StepT
from akka_otel_callbacks.common.recording.memory import set_memory
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.trl.efficiency import Efficiency, Positions
from akka_otel_callbacks.trl.log_rows import LogRows
from akka_otel_callbacks.trl.new_values import Mark, new_values


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for every step of a training."""

    devices: int
    efficiency: Efficiency | None
    rows: LogRows
    alone: bool
    """Whether this process is the only one, so that it sees everything that is trained on."""


@dataclass(slots=True)
class StepCapture:
    """What every kind of step leaves behind. The training thread fills it in during the step. From the end of the step
    on it belongs to the translator's thread.

    It has the `time.perf_counter` of each event, or None if the event did not come. The lists are arguments, because a
    `default_factory` takes the training thread as long as everything else.
    """

    job: Job
    losses: list[Any]
    """The micro-batches' losses, already scaled so that their sum is the update's loss."""
    begin: float | None = None
    interrupted: float | None = None
    """The end of an epoch, if it came within the step's accumulation."""
    gradients: float | None = None
    optimized: float | None = None
    end: float | None = None
    earlier_s: float = 0.0
    """The time of the micro-batches before `begin`, if an epoch ended within the step's accumulation."""
    number: int = 0
    epoch: float | None = None
    grad_norm: Any = None
    learning_rate: Any = None
    memory: StepMemory | None = None
    marks: Sequence[Mark] = ()
    """The marks of TRL's buffers, from the end of the step before to the end of this one."""

    def deliver(self, recorder: Recorder) -> None:
        """Makes a step of it, on the translator's thread."""
        raise NotImplementedError

    def go_on(self, now: float) -> None:
        """Notes that the step goes on in the next epoch. The time between is no part of it."""
        self.earlier_s += _between(self.begin, self.interrupted) or 0.0
        self.begin, self.interrupted = now, None

    def duration_s(self) -> float | None:
        return self._since_begin(self.end)

    def forward_backward_s(self) -> float | None:
        return self._since_begin(self.gradients)

    def optimizer_s(self) -> float | None:
        return _between(self.gradients, self.optimized)

    def _since_begin(self, end: float | None) -> float | None:
        seconds = _between(self.begin, end)
        return None if seconds is None else seconds + self.earlier_s

    def values(self) -> dict[str, Any]:
        """The step's own values by TRL's log key."""
        values: dict[str, Any] = new_values(self.marks)
        values["grad_norm"], values["learning_rate"] = self.grad_norm, self.learning_rate
        return values

    def complete(self, step: StepT) -> StepT:
        """Sets what is the same for every kind of step."""
        step.number, step.epoch = self.number, self.epoch
        step.duration_s = self.duration_s()
        step.loss = self._loss()
        set_memory(step, self.memory)
        return step

    def _loss(self) -> float | None:
        """The update's loss. With several processes, the loss of this one's batches is not the update's, unless it is
        NaN: then the mean over all processes is NaN, too."""
        loss = total(self.losses) if self.losses else None
        return loss if self.job.alone or (loss is not None and not math.isfinite(loss)) else None

    def set_mfu(self, step: Step, positions: Positions, update_s: float | None) -> None:
        if self.job.efficiency is not None:
            step.mfu = self.job.efficiency.mfu(positions, update_s)

    def set_tokens(self, step: Step, tokens: float) -> None:
        """Sets the tokens, and the tokens per second and device. A step without tokens has neither."""
        if tokens > 0:
            step.tokens = tokens
            step.throughput = tokens / step.duration_s / self.job.devices if step.duration_s else None

    def record(self, step: Step, recorder: Recorder) -> None:
        self.job.rows.follow(step)
        recorder.record(step)


def total(losses: Sequence[Any]) -> float | None:
    """The sum. None if one of the losses is no number."""
    found = [number(loss) for loss in losses]
    return sum(loss for loss in found if loss is not None) if None not in found else None


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
