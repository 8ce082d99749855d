"""Validations of trainers that have no method for them. A supervised trainer goes over its validation data within its
training, and fully_async logs how long another process validated."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.patching.calls import Call, before
from akka_otel_callbacks.common.recording.pauses import EVALUATION
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import SFTStep
from akka_otel_callbacks.verl.driver.validation import of_training
from akka_otel_callbacks.verl.state import STATE

LOADER = "val_dataloader"
"""The attribute of a supervised trainer with its validation data. The trainer iterates it once in each validation."""
LOSS = "val/loss"
"""The key that a supervised trainer logs at the end of a validation."""
ROLLOUTER_S = "rollouter/validate_time"
"""The key by which fully_async logs how many seconds a validation took, which runs in another process."""


class Validations:
    """The validations of a run whose trainer has no method for them."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        STATE.validated = STATE.validation_begun_ns = None

    def listen(self, trainer: object) -> None:
        """Hears of the validations of a supervised trainer. None stands for a trainer of another kind, which has a
        method for them."""
        loader = getattr(trainer, LOADER, None)
        if loader is not None:
            before(type(loader), "__iter__", _begin)
            STATE.validated = weakref.ref(loader)

    def logged(self, data: Mapping[str, Any]) -> bool:
        """verl logs this right now. Returns whether it is the end of a validation."""
        end_ns, begun_ns = now_ns(), STATE.validation_begun_ns
        if (seconds := number(data.get(ROLLOUTER_S))) is not None and 0 <= seconds < end_ns / 1e9:
            self._telemetry.span(names.SPAN_EVAL, end_ns - int(seconds * 1e9), end_ns)
            return True
        if begun_ns is not None and LOSS in data:
            STATE.validation_begun_ns = None
            self._telemetry.pauses.end(EVALUATION)
            self._telemetry.span(names.SPAN_EVAL, begun_ns, end_ns)
            self._telemetry.capture(Timing((end_ns - begun_ns) / 1e9))
            return True
        return False

    def close(self, error: BaseException | None) -> None:
        """The training is over, perhaps in the middle of a validation."""
        if error is not None and STATE.validation_begun_ns is not None:
            self._telemetry.span(names.SPAN_EVAL, STATE.validation_begun_ns, now_ns(), error=error)
        STATE.validated = STATE.validation_begun_ns = None


class Timing(NamedTuple):
    """A capture: how long a validation took that verl does not time."""

    seconds: float

    def deliver(self, recorder: Recorder) -> None:
        recorder.record(SFTStep(timing_s={names.SftStepPhase.EVAL: self.seconds}))


def _begin(iteration: Call) -> None:
    if STATE.validated is None or STATE.validated() is not iteration.owner:
        return
    if STATE.validation_begun_ns is None and (telemetry := of_training()) is not None:
        telemetry.pauses.begin(EVALUATION)
    STATE.validation_begun_ns = now_ns()
