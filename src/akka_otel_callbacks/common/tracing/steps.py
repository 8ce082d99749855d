"""The spans of a step and of its phases. They are written once they have ended, with the times of the engine's
clock."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.tracing.interval import Interval
from akka_otel_callbacks.common.tracing.trace import mark_failed
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Span
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step

if TYPE_CHECKING:
    from akka_otel_callbacks.common.recording.recorder import Recorder
    from akka_otel_callbacks.common.tracing.trace import Trace


class Kind(NamedTuple):
    """The spans of one kind of step."""

    step: Span
    phase: Span
    phase_name: Attribute


KINDS: dict[type[Step], Kind] = {
    RLStep: Kind(names.SPAN_RL_STEP, names.SPAN_RL_STEP_PHASE, names.ATTR_RL_STEP_PHASE),
    SFTStep: Kind(names.SPAN_SFT_STEP, names.SPAN_SFT_STEP_PHASE, names.ATTR_SFT_STEP_PHASE),
}


@dataclass(slots=True)
class StepSpans:
    """A capture of one step's time.

    Attributes:
        step: the whole step. None if that is not known.
        phases: those of the step, and those between it and the step before. The latter stand under the job.
        number: the engine's own. None for a step that did not end.
    """

    trace: Trace
    step_type: type[Step]
    step: Interval | None
    phases: Iterable[Interval]
    number: int | None = None

    def deliver(self, recorder: Recorder) -> None:
        kind, unix_ns = KINDS[self.step_type], now_ns() - time.perf_counter_ns()
        known = {} if self.number is None else {names.ATTR_SPAN_STEP.name: self.number}
        whole = None
        if self.step is not None:
            cut = {names.ATTR_SPAN_UNFINISHED.name: True} if self.number is None else {}
            whole = self.trace.start(kind.step.name, unix_ns + _ns(self.step.start), attributes={**known, **cut})
        for phase in self.phases:
            parent = whole if self.step is not None and self.step.start <= phase.start <= self.step.end else None
            what = {kind.phase_name.name: phase.name, **known}
            span = self.trace.start(kind.phase.of(phase.name), unix_ns + _ns(phase.start), parent, what)
            if phase.error is not None:
                mark_failed(span, phase.error)
            span.end(unix_ns + _ns(phase.end))
        if self.step is not None and whole is not None:
            if self.step.error is not None:
                mark_failed(whole, self.step.error)
            whole.end(unix_ns + _ns(self.step.end))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
