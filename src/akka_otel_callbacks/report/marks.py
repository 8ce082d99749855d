"""What happened at a step: values that were no numbers, faults of GPUs, checkpoints, attempts that began."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from akka_otel_callbacks.common.gpu.xid_codes import IN_WORDS, XIDS, cause_of
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.words import short
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.drawn import Mark
from akka_otel_callbacks.report.gpus import gpu_name
from akka_otel_callbacks.report.history import BY_NAME, OF_STEPS, History


class Gap(NamedTuple):
    """A figure was NaN or infinite so many times, first at a step, or where `exactly` is false by then."""

    step: float
    times: float
    exactly: bool


def attempts(run: History) -> Iterator[Mark]:
    """The steps at which a later attempt took over."""
    for attempt in run.attempts[1:]:
        number = attempt.run.resource.get(names.ATTR_RUN_ATTEMPT.name, "")
        yield Mark(attempt.clock.steps[0], f"attempt {number} begins".replace("  ", " "))


def nonfinite(run: History) -> Iterator[Mark]:
    """Figures that were NaN or infinite."""
    for figure, found in not_finite(run).items():
        for step, times, exactly in found:
            yield Mark(step, f"{times:.0f} × {figure} not finite{'' if exactly else ' by then'}", bad=True)


def not_finite(run: History) -> dict[str, list[Gap]]:
    """For each figure, when it was NaN or infinite."""
    courses = run.courses(names.TELEMETRY_NONFINITE)
    exports = sorted({x for course in courses for x in course.x})
    found: dict[str, list[Gap]] = {}
    for course in courses:
        figure, term = course.of(names.ATTR_TELEMETRY_METRIC), course.of(names.ATTR_RL_TERM)
        before = bisect_left(exports, course.x[0])  # some begin with the first value that is not finite
        begin = exports[before - 1] if before else run.clock[0][0]
        gaps = [_gap(run, figure, term, *gain) for gain in gains(course, begin)]
        if gaps:
            found[f"{short(figure)} {term}".strip()] = gaps
    return found


def xids(run: History) -> Iterator[Mark]:
    """Faults of GPUs, each with the latest code if that has the fault's cause. Earlier codes are in the log only."""
    codes = {course.of(names.ATTR_HW_ID): course for course in run.courses(names.GPU_XID_LAST)}
    for course in run.courses(names.GPU_XID_CAUSES):
        cause = course.of(names.ATTR_GPU_XID_CAUSE)
        last = codes.get(course.of(names.ATTR_HW_ID))
        for _, until, more in gains(course):
            code = next((int(y) for x, y in zip(last.x, last.y, strict=True) if x >= until), None) if last else None
            several = f" ({more:.0f} XIDs)" if more > 1 else ""
            yield Mark(until, f"{gpu_name(course)}: {_fault(code, cause)}{several}", bad=True)


def _fault(code: int | None, cause: str) -> str:
    """What the driver reported, in words."""
    if code is None or cause_of(code) != cause:
        return f"XID, {IN_WORDS.get(cause, cause)}"
    return f"XID {code}: {XIDS[code].meaning}" if code in XIDS else f"XID {code}"


def failed_saves(run: History) -> Iterator[Mark]:
    """Checkpoint operations that failed."""
    for totals in run.totals(names.CHECKPOINT_OPERATION_DURATION):
        if totals.of(names.ATTR_CHECKPOINT_OUTCOME) == names.CheckpointOutcome.FAILURE:
            operation = totals.of(names.ATTR_CHECKPOINT_OPERATION) or "checkpoint"
            before = 0
            for step, histogram in totals.points:
                if histogram.count > before:
                    yield Mark(step, f"{operation} failed", bad=True)
                before = histogram.count


def gains(course: Course, begin: float | None = None) -> Iterator[tuple[float, float, float]]:
    """When a counter grew: after which point, until which, and by how much.

    Args:
        begin: where it was zero. None for just before its first point, where that is not known.
    """
    points = [(course.x[0] if begin is None else begin, 0.0), *zip(course.x, course.y, strict=True)]
    for (since, before), (until, now) in pairwise(points):
        if now > before:
            yield since, until, now - before
        elif now < before and now:  # a later attempt counts anew
            yield since, until, now


def _gap(run: History, name: str, term: str, since: float, until: float, more: float) -> Gap:
    """At the first step after `since`, up to `until`, that lacks a figure which was not finite `more` times meanwhile.
    By the last one where that cannot be told: a reward of a single rollout is in no step, nor is an evaluation's loss,
    and more steps than these may lack the figure by its nature."""
    steps = run.steps[bisect_right(run.steps, since) : bisect_right(run.steps, until)]
    by_then = Gap(steps[-1] if steps else until, more, exactly=False)
    if name not in OF_STEPS:
        return by_then
    course = run.course(BY_NAME[name], **({names.ATTR_RL_TERM.name: term} if term else {}))
    lacking = [step for step in steps if not _has(course.x if course else (), step)]
    return Gap(lacking[0], more, exactly=True) if 0 < len(lacking) <= more else by_then


def _has(ascending: Sequence[float], value: float) -> bool:
    place = bisect_left(ascending, value)
    return place < len(ascending) and ascending[place] == value
