"""The spans of steps and phases by verl's own timers, where `AKKA_OTEL_SPANS` asks for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.common.export.detail import Detail
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.tracing.interval import Interval
from akka_otel_callbacks.common.tracing.steps import StepSpans
from akka_otel_callbacks.common.vocabulary.names import RlStepPhase
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.verl.driver.vocabulary import PHASE_ALIASES, TIMING
from akka_otel_callbacks.verl.state import STATE


class Spans:
    """Hands the step's timings to the translator's thread with each step.

    Args:
        telemetry: the run's.
        step_type: what it reports.
    """

    def __init__(self, telemetry: Telemetry, step_type: type[Step]) -> None:
        self._telemetry, self._step_type = telemetry, step_type
        STATE.timings.take()
        STATE.timings.listening = True

    def logged(self, logged: Mapping[str, Any], number: int, update_s: float | None) -> None:
        """A step is complete right now.

        Args:
            logged: what verl logs of it. A timer that is not in there times something else, such as one rollout.
            number: its number.
            update_s: how long a supervised update took, which has no timer.
        """
        timings, now = STATE.timings.take(), time.perf_counter()
        step = _step(timings)
        if step is None and update_s is not None:
            step = Interval("", now - update_s, now)
        phases = [timing for timing in timings if TIMING + timing.name in logged]
        self._emit(step, phases, number)

    def close(self, error: BaseException | None) -> None:
        """The training is over, and where it failed within a step, so is that."""
        STATE.timings.listening = False
        timings = STATE.timings.take()
        if error is not None and (step := _step(timings)) is not None:
            self._emit(step, [timing for timing in timings if "/" not in timing.name], None)

    def _emit(self, step: Interval | None, timings: list[Interval], number: int | None) -> None:
        phases = []
        if self._telemetry.detail >= Detail.PHASE:
            named = [timing._replace(name=PHASE_ALIASES.get(timing.name, timing.name)) for timing in timings]
            phases = [phase for phase in named if phase.name != RlStepPhase.STEP and "/" not in phase.name]
        self._telemetry.capture(StepSpans(self._telemetry.trace, self._step_type, step, phases, number))


def _step(timings: list[Interval]) -> Interval | None:
    return next((timing for timing in reversed(timings) if timing.name == RlStepPhase.STEP), None)
