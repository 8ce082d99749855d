"""The few figures that stand above everything else, and who the run was."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.follower import is_gone, seems_to_run
from akka_otel_callbacks.reading.words import clock_time, duration, short
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.trend import lately, window

NOT_SHOWN = ("telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version")


class Fact(NamedTuple):
    """A label, what is said, and a smaller remark."""

    label: str
    value: str
    hint: str = ""


def facts(run: History, now_ns: int) -> Iterator[Fact]:
    """Alive? How far? Learning? How fast?

    Args:
        now_ns: when the page is made.
    """
    yield state(run, now_ns)
    yield progress(run)
    yield from filter(None, [change(run), speed(run), utilization(run)])


def state(run: History, now_ns: int) -> Fact:
    if run.has_ended:
        took = f"after {duration((run.ending.time_ns - run.start_ns) / 1e9)}" if run.start_ns else ""
        return Fact("State", str(run.ending), took)
    if run.newest.is_replayed:  # the file may be new, the run is not
        without = ", which has no times" if has_assumed_times(run) else ""
        return Fact("State", str(run.ending), f"from the log of a past run{without}")
    if not run.newest_ns:
        return Fact("State", str(run.ending), "no figure says when it was taken")
    quiet = (now_ns - run.newest_ns) / 1e9
    said = "running" if seems_to_run(run.newest, now_ns) else str(run.ending)
    heard = f"last heard of {duration(quiet)} before this page was made"
    return Fact("State", said, f"its process is gone, {heard}" if is_gone(run.newest) else heard)


def progress(run: History) -> Fact:
    planned = run.course(names.JOB_STEPS_PLANNED)
    step = f"{run.steps[-1]:,.0f}" if run.steps else "none"
    over = run.has_ended or run.newest.is_replayed
    last = (run.newest_ns - run.start_ns) / 1e9 - run.clock[-1][1]
    hint = f"{duration(last)} old at the newest export" if run.steps and not over else ""
    return Fact("Step", f"{step} of {planned.y[-1]:,.0f}" if planned else step, hint)


def change(run: History) -> Fact | None:
    for metric, label in ((names.RL_STEP_REWARD, "Reward"), (names.SFT_STEP_LOSS, "Loss")):
        course = run.course(metric)
        if course and len(course.y) > 1:
            size = min(window(course), len(course.y) // 2)
            first, last = median(course.y[:size]), median(course.y[-size:])
            gone = course.x[-1] < run.steps[-size]  # as of weights that are NaN
            since = f", none since step {course.x[-1]:,.0f}" if gone else ""
            return Fact(label, f"{last:.4g}", f"from {first:.4g}: {last - first:+.3g}{since}")
        if course:
            return Fact(label, f"{course.y[-1]:.4g}", "of one step")
    return None


def speed(run: History) -> Fact | None:
    return _lately(run, "Tokens/s and device", names.RL_STEP_THROUGHPUT, names.SFT_STEP_THROUGHPUT, form="{:,.0f}")


def utilization(run: History) -> Fact | None:
    return _lately(run, "MFU", names.RL_STEP_MFU, names.SFT_STEP_MFU, form="{:.1%}")


def who(run: History) -> Iterator[Fact]:
    """Every attribute of its resource, the run's own first."""
    if run.start_ns and not has_assumed_times(run):
        yield Fact("began", f"{clock_time(run.start_ns)} UTC")
    own = sorted(run.newest.resource.items(), key=lambda item: (not item[0].startswith(names.PREFIX), item[0]))
    yield from (Fact(short(key), value) for key, value in own if key not in NOT_SHOWN)


def has_assumed_times(run: History) -> bool:
    return run.newest.resource.get(names.ATTR_REPLAY_TIMES.name) == names.ReplayTimes.ASSUMED


def _lately(run: History, label: str, *metrics: object, form: str) -> Fact | None:
    courses = [course for metric in metrics for course in run.courses(metric)]  # type: ignore[arg-type]
    if not courses:
        return None
    course: Course = courses[0]
    return Fact(label, form.format(median(lately(course) or course.y)), "median lately")
