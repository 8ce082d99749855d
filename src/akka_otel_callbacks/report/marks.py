"""What happened at a step: values that were no numbers, faults of GPUs, checkpoints, attempts that began."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from akka_otel_callbacks.common.gpu.xid_codes import IN_WORDS, XIDS, cause_of
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.words import short
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.drawn import Mark
from akka_otel_callbacks.report.gpus import gpu_name
from akka_otel_callbacks.report.history import BY_NAME, History


def attempts(run: History) -> Iterator[Mark]:
    """Where a later attempt took over."""
    for attempt in run.attempts[1:]:
        number = attempt.run.resource.get(names.ATTR_RUN_ATTEMPT.name, "")
        yield Mark(attempt.clock.steps[0], f"attempt {number} begins".replace("  ", " "))


def nonfinite(run: History) -> Iterator[Mark]:
    """Figures that were NaN or infinite. The step is the first one since the export before that lacks the figure."""
    for course in run.courses(names.TELEMETRY_NONFINITE):
        figure, term = course.of(names.ATTR_TELEMETRY_METRIC), course.of(names.ATTR_RL_TERM)
        what = f"{short(figure)} {term}".strip()
        for since, until, more in gains(course):
            yield Mark(lacking(run, figure, since, until), f"{more:.0f} × {what} not finite", bad=True)


def xids(run: History) -> Iterator[Mark]:
    """Faults of GPUs, with the latest code where that is of the fault's cause. The log alone has an earlier code."""
    codes = {course.of(names.ATTR_HW_ID): course for course in run.courses(names.GPU_XID_LAST)}
    for course in run.courses(names.GPU_XID_ERRORS):
        cause = course.of(names.ATTR_GPU_XID_CAUSE)
        last = codes.get(course.of(names.ATTR_HW_ID))
        for _, until, more in gains(course):
            code = next((int(y) for x, y in zip(last.x, last.y, strict=True) if x >= until), None) if last else None
            several = f" ({more:.0f} XIDs)" if more > 1 else ""
            yield Mark(until, f"{gpu_name(course)}: {_fault(code, cause)}{several}", bad=True)


def _fault(code: int | None, cause: str) -> str:
    """In words. A run of an earlier release counted no causes."""
    if code is None or (cause and cause_of(code) != cause):
        return f"XID, {IN_WORDS[cause]}" if cause in IN_WORDS else "XID"
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


def gains(course: Course) -> Iterator[tuple[float, float, float]]:
    """When a counter grew: after which point, until which, and by how much. It begins at zero, just before its first
    point: since when it counts is not known."""
    points = [(course.x[0], 0.0), *zip(course.x, course.y, strict=True)]
    for (since, before), (until, now) in pairwise(points):
        if now > before:
            yield since, until, now - before
        elif now < before and now:  # a later attempt counts anew
            yield since, until, now


def lacking(run: History, name: str, since: float, until: float) -> float:
    """The first step after one place, up to another, that lacks the figure where other steps have it. Where none does,
    as with the rewards of single rollouts, the last step."""
    metric = BY_NAME.get(name)
    course = run.course(metric) if metric else None
    there = course.x if course else run.steps
    begin, end = bisect_right(run.steps, since), bisect_right(run.steps, until)
    last = run.steps[end - 1] if end else until
    return next((step for step in run.steps[begin:end] if not _has(there, step)), last)


def _has(ascending: Sequence[float], value: float) -> bool:
    place = bisect_left(ascending, value)
    return place < len(ascending) and ascending[place] == value
