"""Which attempt a trainer's checkpoint is of: saved with the trainer's state, and read where a training resumes."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.checkpoints.restored import restored
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.attempt import Attempt, later
from akka_otel_callbacks.common.vocabulary.points import AttributeValue
from akka_otel_callbacks.trl.running import Running
from akka_otel_callbacks.trl.taps import argument

if TYPE_CHECKING:
    from transformers import TrainerState, TrainingArguments

SAVED = "akka_otel"
"""The name of the attempt among a trainer state's callbacks. No class has this name, because transformers would replace
the callback by what a checkpoint holds under it."""


def remember(state: TrainerState, attempt: Attempt) -> None:
    """Puts the attempt among the states of callbacks that transformers saves."""
    saved = getattr(state, "stateful_callbacks", None)
    if isinstance(saved, dict):
        saved[SAVED] = {"args": {}, "attributes": attempt.state()}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a training begins from."""

    checkpoint: Path | None = None
    """The folder that the call of `train` resumes from. None if it starts anew."""
    saver: Attempt | None = None
    """The attempt that saved the trainer's state. None if the state was not loaded from a checkpoint, or does not say
    it."""

    @classmethod
    def of(cls, run: Running | None, args: TrainingArguments, state: TrainerState) -> Origin:
        """The origin of a training that begins now, whose state is loaded."""
        return cls(_checkpoint(run, args), _saver(state))

    def attempt(self) -> Attempt | None:
        """The last attempt that is known to have had the checkpoint. One that was resumed from before says so in a
        file, so that a second training from there is another attempt."""
        return later(self.saver, Attempt.read(self.checkpoint) if self.checkpoint is not None else None)

    def note(self, attempt: Attempt) -> None:
        """Writes the attempt into the checkpoint, on a thread of its own, because the training thread must not wait for
        a disk."""
        if (checkpoint := self.checkpoint) is None:
            return

        @guarded
        def write() -> None:
            with suppress(OSError):  # a checkpoint may be read-only, or a copy that is gone again
                attempt.write(checkpoint)

        threading.Thread(target=write, name="akka-otel-checkpoint", daemon=True).start()

    def described(self, attempt: Attempt, step: int) -> Mapping[str, AttributeValue]:
        """What the span of the attempt says of its origin. Nothing if it starts anew.

        Args:
            attempt: the one that has begun from here.
            step: the trainer's count of steps when it began. It is 0 where the checkpoint is of weights alone.
        """
        return {} if self.checkpoint is None else restored(attempt, self.saver, step or None)


def _checkpoint(run: Running | None, args: TrainingArguments) -> Path | None:
    given = argument(run.arguments, 1, "resume_from_checkpoint") if run is not None else None
    if given is True:
        from transformers.trainer_utils import get_last_checkpoint

        given = get_last_checkpoint(args.output_dir)
    return Path(given) if isinstance(given, (str, os.PathLike)) else None


def _saver(state: TrainerState) -> Attempt | None:
    saved = getattr(state, "stateful_callbacks", None)
    own = saved.get(SAVED) if isinstance(saved, Mapping) else None
    attributes = own.get("attributes") if isinstance(own, Mapping) else None
    return Attempt.from_state(attributes)
