"""What every kind of training loop leaves behind at each step, on the training thread and as cheaply as possible."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.memory import StepMemory
from akka_otel_callbacks.common.recorder import Recorder
from akka_otel_callbacks.common.step import RLStep, SFTStep, Step
from akka_otel_callbacks.common.telemetry import Capture
from akka_otel_callbacks.trl.accelerators import device_count, memory_account
from akka_otel_callbacks.trl.attach import Hook, Listener
from akka_otel_callbacks.trl.efficiency import Efficiency, Positions
from akka_otel_callbacks.trl.tails import TailReader, Tails
from akka_otel_callbacks.trl.vocabulary import is_evaluation, is_summary

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments


class Emit(Protocol):
    """Takes a capture for the translator's thread; `step` says that it completes a step."""

    def __call__(self, capture: Capture, *, step: bool = False) -> None: ...


StepT = TypeVar("StepT", RLStep, SFTStep)
SAVE, EVAL = "save_checkpoint", "eval"


@dataclass(slots=True)
class Known:
    """A capture that is translated already."""

    step: Step

    def deliver(self, recorder: Recorder) -> None:
        recorder.record(self.step)


class BegunAgain:
    """Says that the training starts over: `auto_find_batch_size` after a batch that did not fit."""

    def deliver(self, recorder: Recorder) -> None:
        recorder.begin_again()


@dataclass(slots=True)
class Clock:
    """`time.perf_counter` at the events of one step; None for an event that did not come."""

    begin: float | None = None
    gradients: float | None = None
    optimized: float | None = None
    end: float | None = None

    def duration_s(self) -> float | None:
        return _between(self.begin, self.end)

    def forward_backward_s(self) -> float | None:
        return _between(self.begin, self.gradients)

    def optimizer_s(self) -> float | None:
        return _between(self.gradients, self.optimized)


@dataclass(slots=True, kw_only=True)
class StepCapture:
    """What every kind of step leaves behind."""

    number: int
    clock: Clock
    values: dict[str, Any]
    """By TRL's log key."""
    devices: int
    memory: StepMemory | None
    efficiency: Efficiency | None
    positions: Positions

    def complete(self, step: StepT) -> StepT:
        """Sets what is the same for every kind of step."""
        step.number = self.number
        step.duration_s = self.clock.duration_s()
        if self.memory is not None:
            step.memory_max_allocated_bytes = self.memory.max_allocated
            step.memory_max_reserved_bytes = self.memory.max_reserved
            step.memory_bytes = self.memory.parts()
        return step

    def set_mfu(self, step: Step, update_s: float | None) -> None:
        if self.efficiency is not None:
            step.mfu = self.efficiency.mfu(self.positions, update_s)

    def set_tokens(self, step: Step, tokens: float) -> None:
        """Tokens and tokens per second and device; both absent in a step without."""
        if tokens > 0:
            step.tokens = tokens
            step.throughput = tokens / step.duration_s / self.devices if step.duration_s else None


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start


class Loop:
    """One training of one trainer. Subclasses know the figures of their kind of loop.

    Values that a device holds are kept as references and read later, on the translator's thread: reading them here
    would make the training wait for the device.
    """

    step_type: type[Step]

    def __init__(
        self,
        trainer: Trainer | None,
        args: TrainingArguments,
        state: TrainerState,
        *,
        listener: Listener,
        emit: Emit,
        efficiency: Efficiency | None,
    ) -> None:
        self._trainer_ref = weakref.ref(trainer) if trainer is not None else lambda: None
        self._listener = listener
        self._emit = emit
        self._tails = TailReader(_training_buffers(trainer) or {})
        self._clock = Clock()
        self._grad_norm: Any = None
        self._learning_rate: Any = None
        self._row: dict[str, Any] = {}
        self._from_rows: set[str] = set()
        self.missing: list[str] = []
        """What this trainer lacks of what the loop reads; the log rows stand in for it where they can."""
        self.devices = device_count(trainer, args)
        self._efficiency = efficiency
        self._positions = Positions()
        self._memory = memory_account(trainer, args)
        self._watch_memory(trainer)
        self._wrap_common(trainer)

    # The events of a step, in their order.

    def begin_step(self) -> None:
        self._memory_begins()
        self._clock = Clock(begin=time.perf_counter())
        self._grad_norm = self._learning_rate = None

    def gradients_ready(self, optimizer: Any) -> None:
        self._clock.gradients = time.perf_counter()
        self._memory_of_gradients()
        self._learning_rate = optimizer.param_groups[0]["lr"] if optimizer is not None else None

    def optimized(self) -> None:
        self._clock.optimized = time.perf_counter()

    def end_step(self, state: TrainerState) -> None:
        self._clock.end = time.perf_counter()
        self._emit(self._captured(state), step=True)

    def logged(self, row: Mapping[str, Any]) -> None:
        """Takes a log row, which may say what the step could not."""
        if not (self.log_only or self._from_rows) or is_evaluation(row) or is_summary(row):
            return
        self._row = dict(row) if self.log_only else {key: row[key] for key in self._from_rows if key in row}
        if self._row:
            self._emit(Known(self._translated(self._row)))

    def _captured(self, state: TrainerState) -> Capture:
        """What this step left behind."""
        raise NotImplementedError

    def _common(self, state: TrainerState) -> dict[str, Any]:
        """The fields of a `StepCapture`."""
        return {
            "number": state.global_step,
            "clock": self._clock,
            "values": self._values(),
            "devices": self.devices,
            "memory": self._memory_ends(),
            "efficiency": self._efficiency,
            "positions": self._positions,
        }

    def _translated(self, values: Mapping[str, Any]) -> Step:
        """Log keys to figures."""
        raise NotImplementedError

    @property
    def log_only(self) -> bool:
        """Whether the trainer has no per-step buffers, so that log rows are all there is."""
        return "_metrics" in self.missing

    def in_training(self) -> bool:
        """TRL's own test for training against evaluation."""
        trainer = self._trainer_ref()
        return trainer is not None and bool(trainer.model.training)

    def _values(self) -> dict[str, Any]:
        """The step's tails, beside what the latest row said of figures that no tail has."""
        tails: Tails = self._tails.new(_training_buffers(self._trainer_ref()) or {})
        values = {**self._row, **tails}
        if self._grad_norm is not None:
            values["grad_norm"] = self._grad_norm
        if self._learning_rate is not None:
            values["learning_rate"] = self._learning_rate
        return values

    def _watch_memory(self, trainer: Trainer | None) -> None:
        """Each door apart: without the memory, a step still has its clock."""
        account = self._memory
        self._memory_begins = guarded(account.begin_step)
        self._memory_of_gradients = guarded(account.before_optimizer_step)
        self._memory_ends = guarded(account.end_step)
        models = [getattr(trainer, name, None) for name in ("model", "ref_model")]
        guarded(account.watch)([model for model in models if model is not None], getattr(trainer, "optimizer", None))

    def _wrap_common(self, trainer: Trainer | None) -> None:
        if _training_buffers(trainer) is None:
            self.missing.append("_metrics")
        self._wrap(trainer, "_save_checkpoint", self._saved)
        norm_owner, norm = self._grad_norm_source(trainer)
        if not self._listener.after(norm_owner, norm, self._normed):
            self._from_rows.add("grad_norm")

    def _wrap(self, trainer: Trainer | None, name: str, hook: Hook, before: Callable[[], None] | None = None) -> bool:
        if self._listener.after(trainer, name, hook, before):
            return True
        self.missing.append(name)
        return False

    @staticmethod
    def _grad_norm_source(trainer: Trainer | None) -> tuple[Any, str]:
        """transformers 5 has one method for every way to a norm; before, the accelerator clips and returns it."""
        if hasattr(trainer, "_get_grad_norm"):
            return trainer, "_get_grad_norm"
        return getattr(trainer, "accelerator", None), "clip_grad_norm_"

    def _normed(self, norm: Any, args: tuple[Any, ...], seconds: float) -> None:
        if hasattr(norm, "full_tensor"):  # sharded: only a collective could read it, the trainer's log does
            self._from_rows.add("grad_norm")
        else:
            self._grad_norm = norm

    def _saved(self, result: Any, args: tuple[Any, ...], seconds: float) -> None:
        self._emit(Known(self.step_type(timing_s={SAVE: seconds})))


def _training_buffers(trainer: Trainer | None) -> Mapping[str, list[Any]] | None:
    """TRL's per-step buffers of the training; None for a trainer that keeps none, or keeps them in another form."""
    buffers = getattr(trainer, "_metrics", None)
    training = buffers.get("train") if isinstance(buffers, Mapping) else None
    return training if isinstance(training, Mapping) else None
