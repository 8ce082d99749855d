"""The checkpoints that a trainer saves by itself: how long each save took, what it contains, whether it failed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.checkpoints.engine_save import saved
from akka_otel_callbacks.common.recording.pauses import CHECKPOINT
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary.names import CheckpointArtifactKind as ArtifactKind
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.trl.loop import SAVE, TranslatedStep
from akka_otel_callbacks.trl.settings import adapter_of
from akka_otel_callbacks.trl.taps import Arguments, Listener

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

METHOD = "_save_checkpoint"


def watch_saves(
    listener: Listener, trainer: Trainer | None, args: TrainingArguments, telemetry: Telemetry, step_type: type[Step]
) -> bool:
    """Follows saves until the listener ends. False if the trainer saves in an unknown way.

    Of several processes only the first is measured, which is this one. It writes what all have in common. If each
    process writes a shard of its own, the first one waits for the others.
    """

    watched = weakref.ref(trainer) if trainer is not None else lambda: None

    def kind() -> str | None:
        return artifact_kind(args, getattr(watched(), "model", None))

    def begin() -> None:
        telemetry.pauses.begin(CHECKPOINT)

    def ended(result: Any, arguments: Arguments, seconds: float) -> None:
        telemetry.pauses.end(CHECKPOINT)
        telemetry.capture(TranslatedStep(step_type(timing_s={SAVE: seconds})))
        saved(telemetry, seconds, artifact_kind=kind())

    def failed(error: BaseException, seconds: float) -> None:
        telemetry.pauses.end(CHECKPOINT)
        saved(telemetry, seconds, artifact_kind=kind(), error=error)

    return listener.after(trainer, METHOD, ended, before=begin, failed=failed)


def artifact_kind(args: TrainingArguments, model: Any) -> str | None:
    """What kind of checkpoint is saved. With the optimizer's state a training can resume from it, also with an adapter.
    The weights of a whole model alone are of no kind."""
    if not getattr(args, "save_only_model", False):
        return ArtifactKind.FULL_STATE
    return ArtifactKind.ADAPTER if adapter_of(model) is not None else None
