"""When the steps of a past run were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from akka_otel_callbacks.common.clock import MILLISECOND_NS
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.replay.log import Row

SECOND_NS = 10**9
LONGEST_S = 1e9
"""No step took as long."""


class Timed(NamedTuple):
    """A step, or what amends one, and when it was logged, in Unix nanoseconds."""

    time_ns: int
    step: Step


class Timeline(NamedTuple):
    start_ns: int
    """When the first step began."""
    timed: list[Timed]
    source: str
    """Where the times are from, as the registry has it."""


def timeline(steps: Sequence[tuple[Row, Step]], ended_ns: int) -> Timeline:
    """The times in the log. If a step has none, the times of all steps are assumed: each step comes after the one
    before it by its own duration, or by a second for each step between the two if the duration is not known. The last
    step is at `ended_ns`.

    Args:
        steps: in their order, with the rows that they are from.
        ended_ns: when the log was last changed, which is the latest that its last step can be.
    """
    numbered = [(row, step) for row, step in steps if step.number is not None]
    if numbered and all(row.time_ns is not None for row, _ in numbered):
        return _logged(steps)
    gaps = _gaps(steps)
    if sum(gaps) > ended_ns:  # no run took so long
        gaps = [min(gap, MILLISECOND_NS) for gap in gaps]
    now = ended_ns - sum(gaps)
    start, timed = now, []
    for gap, (_, step) in zip(gaps, steps, strict=True):
        now += gap
        timed.append(Timed(now, step))
    return Timeline(start, timed, names.ReplayTimes.ASSUMED)


def _logged(steps: Sequence[tuple[Row, Step]]) -> Timeline:
    timed: list[Timed] = []
    for row, step in steps:
        before = timed[-1].time_ns if timed else 0
        timed.append(Timed(before if row.time_ns is None else row.time_ns, step))
    return Timeline(timed[0].time_ns - _gaps(steps[:1])[0], timed, names.ReplayTimes.LOGGED)


def _seconds(step: Step) -> float:
    """The duration of the step, or the sum of its phases if only these were timed."""
    return step.duration_s or sum(seconds or 0.0 for seconds in (step.timing_s or {}).values())


def _gaps(steps: Sequence[tuple[Row, Step]]) -> list[int]:
    """Nanoseconds from each step to the next. 0 for what amends a step, which was logged with it."""
    gaps, before = [], None
    for row, step in steps:
        if step.number is None or row.number == before:
            gaps.append(0)
            continue
        skipped = row.number - before if before is not None else 1
        known = _seconds(step) if skipped == 1 else 0.0
        seconds = known if 0 < known < math.inf else float(skipped)
        gaps.append(int(min(seconds, LONGEST_S) * SECOND_NS))
        before = row.number
    return gaps
