"""When a training's steps and their phases begin and end, where `AKKA_OTEL_SPANS` asks for their spans."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.export.detail import Detail
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.tracing.interval import Interval
from akka_otel_callbacks.common.tracing.steps import StepSpans
from akka_otel_callbacks.common.vocabulary.names import RlStepPhase, SftStepPhase
from akka_otel_callbacks.common.vocabulary.step import SFTStep, Step
from akka_otel_callbacks.trl.captures import StepCapture
from akka_otel_callbacks.trl.taps import Arguments, Hook, Listener

if TYPE_CHECKING:
    from transformers import Trainer

WITHIN = {"_generate": RlStepPhase.GEN, "_calculate_rewards": RlStepPhase.REWARD}
"""Methods that are a phase where a step calls them. Evaluations call them, too."""
BESIDE = {"get_batch_samples": SftStepPhase.INPUT}
"""Methods that are a phase between two steps."""


class Spans:
    """Notes times on the training thread, and hands them to the translator with each step.

    Args:
        telemetry: the training's.
        step_type: what it reports.
        trainer: its methods are the phases.
    """

    def __init__(self, telemetry: Telemetry, step_type: type[Step], trainer: Trainer | None) -> None:
        self._telemetry, self._step_type = telemetry, step_type
        self._trainer = weakref.ref(trainer) if trainer is not None else lambda: None
        self._phases: list[Interval] = []
        self._begun: float | None = None

    def listener(self, hears: Callable[[], bool]) -> Listener:
        """A listener that also notes how long the methods of the phases take."""
        return _Noting(hears, self) if self._telemetry.detail >= Detail.PHASE else Listener(hears)

    def begin_step(self, step: StepCapture) -> None:
        """Notes the begin of a step. A step that the end of an epoch interrupts has begun before."""
        if self._begun is None:
            self._begun = step.begin

    def end_step(self, step: StepCapture, number: int) -> None:
        if self._begun is None or step.end is None:
            return
        if self._telemetry.detail >= Detail.PHASE:
            self._note_phases(step)
        self._emit(Interval("", self._begun, step.end), number)

    def cut(self, error: BaseException | None) -> None:
        """The training is over, perhaps in the middle of a step."""
        if self._begun is not None:
            self._emit(Interval("", self._begun, time.perf_counter(), type(error) if error is not None else None), None)

    def note(self, method: str, seconds: float, error: BaseException | None = None) -> None:
        """A method has ended right now."""
        now = time.perf_counter()
        if method in BESIDE or (method in WITHIN and self._is_of_step()):
            name = BESIDE.get(method) or WITHIN[method]
            self._phases.append(Interval(name, now - seconds, now, type(error) if error is not None else None))

    def _is_of_step(self) -> bool:
        trainer = self._trainer()
        return self._begun is not None and trainer is not None and bool(trainer.model.training)

    def _note_phases(self, step: StepCapture) -> None:
        """Notes the phases of a supervised update. If the end of an epoch interrupted it, its forward and backward
        passes have no span."""
        if self._step_type is not SFTStep or step.gradients is None:
            return
        if step.begin is not None and step.begin == self._begun:
            self._phases.append(Interval(SftStepPhase.FORWARD_BACKWARD, step.begin, step.gradients))
        if step.optimized is not None:
            self._phases.append(Interval(SftStepPhase.OPTIMIZER, step.gradients, step.optimized))

    def _emit(self, step: Interval, number: int | None) -> None:
        phases, self._phases, self._begun = self._phases, [], None
        self._telemetry.capture(StepSpans(self._telemetry.trace, self._step_type, step, phases, number))


class _Noting(Listener):
    def __init__(self, hears: Callable[[], bool], spans: Spans) -> None:
        super().__init__(hears)
        self._spans = spans

    def after(
        self,
        owner: object,
        name: str,
        hook: Hook,
        before: Callable[[], None] | None = None,
        failed: Callable[[BaseException, float], None] | None = None,
    ) -> bool:
        def noted(result: Any, arguments: Arguments, seconds: float) -> None:
            self._spans.note(name, seconds)
            hook(result, arguments, seconds)

        def noted_failure(error: BaseException, seconds: float) -> None:
            self._spans.note(name, seconds, error)
            if failed is not None:
                failed(error, seconds)

        return super().after(owner, name, noted, before, noted_failure)
