"""When the steps of a past run were."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.replay.log import Row

MILLISECOND_NS, SECOND_NS = 10**6, 10**9
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
    """The times that the log has. Where a step has none they are assumed for all: each step lies as far behind the one
    before as it took, or a second for each of the numbers between the two where that is not known, and the last one at
    `ended_ns`.

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
    """What the step took, or where only its phases were timed, all of them."""
    return step.duration_s or sum(seconds or 0.0 for seconds in (step.timing_s or {}).values())


def _gaps(steps: Sequence[tuple[Row, Step]]) -> list[int]:
    """Nanoseconds from each to the next. None before what amends a step, which was logged with it."""
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
