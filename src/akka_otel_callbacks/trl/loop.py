"""What every kind of training loop leaves behind at each step, on the training thread and as cheaply as possible."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.telemetry import Capture
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.trl.accelerators import device_count, memory_account
from akka_otel_callbacks.trl.captures import Job, StepCapture
from akka_otel_callbacks.trl.efficiency import Efficiency
from akka_otel_callbacks.trl.log_rows import LogRows
from akka_otel_callbacks.trl.new_values import Marker
from akka_otel_callbacks.trl.taps import Arguments, Hook, Listener, OftenHook, tap_often
from akka_otel_callbacks.trl.vocabulary import is_evaluation, is_summary

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments


class Emit(Protocol):
    """Takes a capture for the translator's thread; `step` says that it completes a step."""

    def __call__(self, capture: Capture, *, step: bool = False) -> None: ...


CaptureT = TypeVar("CaptureT", bound=StepCapture)
PLAIN_TENSOR = "Tensor"
"""The name of the class of a tensor that is not sharded. Asking for an attribute that is not there would take ten times
as long."""
SAVE, EVAL = names.SftStepPhase.SAVE_CHECKPOINT, names.SftStepPhase.EVAL
"""Phases that both kinds of loop have."""


@dataclass(slots=True)
class TranslatedStep:
    """A capture that has been translated already."""

    step: Step

    def deliver(self, recorder: Recorder) -> None:
        recorder.record(self.step)


class Restart:
    """Says that the training starts over: `auto_find_batch_size` after a batch that did not fit."""

    def deliver(self, recorder: Recorder) -> None:
        recorder.begin_again()


class Loop(Generic[CaptureT]):
    """One training of one trainer. Subclasses know the figures of their kind of loop, and end their `__init__` with a
    first `step`.

    Values that a device holds are kept as references and read later, on the translator's thread: reading them here
    would make the training wait for the device.
    """

    step_type: type[Step]
    gives: ClassVar[Mapping[str, tuple[Metric, ...]]]
    """The metrics that come from each hook."""
    step: CaptureT
    """The step that is under way, or the latest one."""

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
        self._marker = Marker(self._is_read)
        self._marks = [self._marker.mark(_training_buffers(trainer) or {})]
        self._in_step = False
        self._number = state.global_step
        self._counts_epochs = has_length(getattr(trainer, "train_dataset", None))
        self.missing: list[str] = []
        """The methods and buffers that the loop reads and this trainer lacks. The log rows stand in for them where they
        can."""
        self._memory = memory_account(trainer, args)
        self._watch_memory(trainer)
        self._wrap_common(trainer)
        self._rows = LogRows(
            self._translated, everything="_metrics" in self.missing, nan_filter=args.logging_nan_inf_filter
        )
        self._job = Job(device_count(trainer, args), efficiency, self._rows, args.world_size <= 1)

    # The events of a step, in their order.

    def begin_step(self) -> None:
        """Begins a step, or goes on with one that the end of an epoch interrupted. Its gradient is kept, and so are the
        figures of its micro-batches."""
        if self._memory_begins is not None:
            self._memory_begins()
        if self._in_step:
            self.step.go_on(perf_counter())
        else:
            self.step, self._in_step = self._begun(perf_counter()), True

    def epoch_ended(self) -> None:
        """Comes right after a micro-batch. If the step goes on in the next epoch, the time between is no part of it."""
        self.step.interrupted = perf_counter()

    def gradients_ready(self, optimizer: Any) -> None:
        self.step.gradients = perf_counter()
        if self._memory_of_gradients is not None:
            self._memory_of_gradients()
        if optimizer is not None:
            self.step.learning_rate = copied(optimizer.param_groups[0]["lr"])

    def optimized(self) -> None:
        self.step.optimized = perf_counter()

    def end_step(self, state: TrainerState) -> bool:
        """Hands on what the step left behind. False if the step's begin failed: `step` is then the one before."""
        if not self._in_step:
            return False
        step = self.step
        step.end, self._in_step = perf_counter(), False
        step.number = self._number = state.global_step
        step.epoch = state.epoch if self._counts_epochs else None
        self._mark()
        step.marks, self._marks = self._marks, self._marks[-1:]
        if self._memory_ends is not None:
            step.memory = self._memory_ends()
        if not step.losses:
            self._tap_again("training_step")
        self._ended(state)
        self._emit(step, step=True)
        return True

    def logged(self, row: Mapping[str, Any]) -> None:
        """Takes a log row, which may say what the step could not."""
        if self._in_step:  # in mid-accumulation: behind a log, TRL drops what it holds
            self._mark()
        if not self._row_can_add() or is_evaluation(row) or is_summary(row):
            return
        if (capture := self._rows.capture(row, self._number)) is not None:
            self._emit(capture)

    def close(self) -> None:
        """Called when the training has ended, maybe in the middle of a step."""

    def _row_can_add(self) -> bool:
        """Whether the latest step may lack something that a row has."""
        return True

    def unused(self, state: TrainerState) -> dict[str, tuple[Metric, ...]]:
        """The sources that the trainer has but has not used so far, and the metrics that come from them. Hosts inherit
        TRL's methods and may not call them. TRL uses each of them in the first step, so this is asked after it."""
        return {name: self.gives[name] for name in sorted(self._listener.uncalled) if name in self.gives}

    def _keeps(self, key: str) -> bool:
        """Whether the trainer's buffers have something under a key."""
        return bool((_training_buffers(self._trainer_ref()) or {}).get(key))

    @staticmethod
    def _is_read(key: str) -> bool:
        """Whether a step's figures are read from what TRL keeps under this log key."""
        raise NotImplementedError

    def _begun(self, now: float | None) -> CaptureT:
        """The capture of a step that begins at `now`. None stands for what comes before the first step."""
        raise NotImplementedError

    def _ended(self, state: TrainerState) -> None:
        """Fills in what is known at the end of the step."""
        raise NotImplementedError

    def _translated(self, values: Mapping[str, Any]) -> Step:
        """The figures of a log row."""
        raise NotImplementedError

    def in_training(self) -> bool:
        """Whether the trainer trains and does not evaluate, by TRL's own test."""
        trainer = self._trainer_ref()
        return trainer is not None and bool(trainer.model.training)

    def _mark(self) -> None:
        """Notes how far the trainer's buffers are filled."""
        trainer = self._trainer_ref()
        buffers = trainer._metrics["train"] if trainer is not None and self._has_buffers else {}
        self._marks.append(self._marker.mark(buffers))

    def _watch_memory(self, trainer: Trainer | None) -> None:
        """Sets up the account of memory. It is guarded by itself: if it fails, a step still has its times. Without
        parts, as in a job of several GPUs, it has something to do at the end of a step only."""
        account = self._memory
        self._memory_begins = guarded(account.begin_step) if account.has_parts else None
        self._memory_of_gradients = guarded(account.before_optimizer_step) if account.has_parts else None
        self._memory_ends = guarded(account.end_step) if account.has_devices else None
        models = [getattr(trainer, name, None) for name in ("model", "ref_model")]
        guarded(account.watch)([model for model in models if model is not None], getattr(trainer, "optimizer", None))

    def _wrap_common(self, trainer: Trainer | None) -> None:
        self._has_buffers = _training_buffers(trainer) is not None
        if not self._has_buffers:
            self.missing.append("_metrics")
        self._wrap_often(trainer, "training_step", self._stepped)
        self._listener.after_often(*self._grad_norm_source(trainer), self._normed)

    def _wrap(self, trainer: Trainer | None, name: str, hook: Hook, **options: Any) -> bool:
        """Hears a method. The options are those of `Listener.after`."""
        return self._is_heard(name, self._listener.after(trainer, name, hook, **options))

    def _wrap_often(self, trainer: Trainer | None, name: str, hook: OftenHook) -> bool:
        """Hears a method of each micro-batch."""
        return self._is_heard(name, self._listener.after_often(trainer, name, hook))

    def _tap_again(self, name: str) -> None:
        """For a method of each micro-batch that was not heard in a step. If it was heard before, somebody has put
        another in its place, such as the original. That one is heard from the next step on."""
        if name not in (*self.missing, *self._listener.uncalled):
            tap_often(self._trainer_ref(), name)

    def _is_heard(self, name: str, heard: bool) -> bool:
        if not heard:
            self.missing.append(name)
        return heard

    @staticmethod
    def _grad_norm_source(trainer: Trainer | None) -> tuple[Any, str]:
        """Where the gradient's norm comes from. transformers 5 has one method for all ways to it. Before, the
        accelerator clips and returns it."""
        if hasattr(trainer, "_get_grad_norm"):
            return trainer, "_get_grad_norm"
        return getattr(trainer, "accelerator", None), "clip_grad_norm_"

    def _normed(self, norm: Any, args: Arguments) -> None:
        # Sharded, it counts as none: only a collective could read it, as the trainer's log does.
        if self._in_step:
            self.step.grad_norm = norm

    def _stepped(self, loss: Any, args: Arguments) -> None:
        """Notes one micro-batch of the update. Behind a step it may be one that the callback, which has left, is still
        told of. The step then belongs to the translator's thread."""
        if self._in_step:
            self.step.losses.append(copied(loss))


def has_length(dataset: Any) -> bool:
    """Whether a dataset says how long it is. If it does not, transformers counts epochs by the planned steps."""
    try:
        return len(dataset) >= 0
    except Exception:  # noqa: BLE001 - a dataset of a user's own may raise anything
        return False


def is_scalar(value: Any) -> bool:
    """Whether the value is one number that can be read. Reading a sharded tensor would take a collective."""
    return isinstance(value, float) or (value.__class__.__name__ == PLAIN_TENSOR and value.ndim == 0)


def copied(value: Any) -> Any:
    """The value as it is now. A tensor, such as a compiled optimizer's learning rate, may be overwritten before it is
    read. Copying it on its device waits for nothing. Neither does reading a plain tensor in main memory, which takes a
    fifth of the time of a copy."""
    kind = value.__class__
    if kind is float:
        return value
    if kind.__name__ == PLAIN_TENSOR and value.is_cpu:
        # `item` lets go of the interpreter: while the translator works, the training thread would wait to get it back.
        found = value.tolist()
        if found.__class__ is float:
            return found
    return value.detach().clone() if hasattr(value, "detach") else value


def _training_buffers(trainer: Trainer | None) -> Mapping[str, list[Any]] | None:
    """TRL's buffers of the training's steps. None for a trainer that has none, or has them in another form.
    Asynchronous trainers fill theirs after the end of a step, so they would show the step before."""
    buffers = None if hasattr(trainer, "_log_step_metrics") else getattr(trainer, "_metrics", None)
    training = buffers.get("train") if isinstance(buffers, Mapping) else None
    return training if isinstance(training, Mapping) else None
