"""What deserves attention in a run, with the numbers: a function for each rule, which gives a line for each finding.

The thresholds stand here, each with its reason. The alert rules in `deploy/` have the same, or say why not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import pairwise
from statistics import median

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.reading.ending import How
from akka_otel_callbacks.reading.follower import is_gone
from akka_otel_callbacks.reading.words import duration
from akka_otel_callbacks.report import marks, rl_panels, sft_panels
from akka_otel_callbacks.report.gpus import gpu_name
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.trend import LATELY_LEAST, lately, window, windows

STALL_STEPS, STALL_S = 10, 300.0
"""A step may take ten times the median, as a validation or a checkpoint does, before the loop counts as stalled."""
DEAD_GROUPS = 0.5
"""The share of groups from which on most prompts have no gradient. DAPO (arXiv 2503.14476) filters such groups for this
reason."""
TRUNCATED, TRUNCATED_MORE = 0.25, 0.15
"""Truncated completions rarely get the reward that they would get, so a quarter of them bends the signal. The share
depends much on a step's prompts, so that every step lately must be above every one of the best time."""
ENTROPY_NATS, ENTROPY_LEFT = 0.05, 0.2
"""At 0.05 nats per token, the likeliest token has a probability of about 0.99, and nothing is left to explore.
Entropy falls in every healthy run, so it must also have lost four fifths (arXiv 2505.22617 describes the collapse)."""
CEILING, CEILING_STEPS = 0.98, 50
"""The share of the way from the lowest reward that a usual step had in any part of the run, to the highest that
rollouts reached in two of any fifty steps. One rollout with a penalty of -100 must not make everything else look as if
it were at the ceiling, and one that a broken grader gave 1000 must not hide it for good."""
GRADER_FAILURES, TOOL_FAILURES = 0.01, 0.5
"""A failed call counts as a score of 0. Models fail with tools while they learn, graders should not."""
HELD_OUT_MORE, EVALUATIONS = 0.1, 3
"""Held-out losses go up and down by a few hundredths. Where several in a row are a tenth above the best one, the
training learns by heart, or forgets."""
INPUT_SHARE = 0.3
"""A step that waits this long for its input is worth a faster data loader."""
GENERATION_SHARE, WAITING_SHARE = 0.9, 0.5
"""Generation takes most of a healthy step. Above nine tenths, a faster update changes nothing that one would notice."""


def failed(run: History) -> Iterator[str]:
    if run.ending.how is How.FAILED:
        yield str(run.ending)


def gone(run: History) -> Iterator[str]:
    """Finds a run that ended without a word. It has to lack planned steps, because a run that writes no spans records
    no end at all."""
    planned = run.course(names.JOB_STEPS_PLANNED)
    if not run.has_ended and is_gone(run.newest) and planned and run.steps and run.steps[-1] < planned.y[-1]:
        yield f"at step {run.steps[-1]:,.0f} of {planned.y[-1]:,.0f}"


def stalled(run: History) -> Iterator[str]:
    times = run.clock
    if run.has_ended or len(times) < 3:
        return
    usual = median(after - before for (_, before), (_, after) in pairwise(times))
    silent = (run.newest_ns - run.start_ns) / 1e9 - max(times[-1][1], _paused_until(run))
    if silent > max(STALL_STEPS * usual, STALL_S):
        yield f"no step for {duration(silent)}, after steps of {duration(usual)}; its process was alive meanwhile"


def _paused_until(run: History) -> float:
    """When it was last known to evaluate or to write a checkpoint, in seconds since it began; 0 where it never was."""
    session = run.newest.session
    found = session.of(names.JOB_STEPS_PAUSED) if session else ()
    paused = (time for series in found for time, value in zip(series.times, series.values, strict=True) if value)
    return max(((time - run.start_ns) / 1e9 for time in paused), default=0.0)


def nonfinite(run: History) -> Iterator[str]:
    for figure, found in marks.not_finite(run).items():
        times, first = sum(gap.times for gap in found), found[0]
        when = f"{'at' if first.exactly else 'by'} step {first.step:,.0f}"
        yield f"{figure} was NaN or infinite {times:,.0f} ×, first {when}"


def dead_groups(run: History) -> Iterator[str]:
    yield from _at_least(
        run, names.RL_STEP_FRAC_REWARD_ZERO_STD, DEAD_GROUPS, "{value:.0%} of the groups, by the median lately"
    )


def truncation(run: History) -> Iterator[str]:
    course = run.course(names.RL_STEP_COMPLETION_CLIPPED_RATIO)
    shares = windows(course) if course else []
    if not shares:
        return
    now, best = shares[-1], min(shares, key=median)
    rises = median(now) - median(best) >= TRUNCATED_MORE and min(now) > max(best)
    if rises and median(now) >= TRUNCATED:
        yield f"from {median(best):.0%} at best to {median(now):.0%} lately"


def entropy_collapse(run: History) -> Iterator[str]:
    course = run.course(names.RL_STEP_ENTROPY)
    nats = [*map(median, windows(course))] if course else []
    if len(nats) > 1 and nats[-1] <= ENTROPY_NATS and nats[-1] <= ENTROPY_LEFT * nats[0]:
        yield f"from {nats[0]:.3g} to {nats[-1]:.3g} nats per token"


def ceiling(run: History) -> Iterator[str]:
    mean, low, high = map(run.course, (names.RL_STEP_REWARD, names.RL_STEP_REWARD_MIN, names.RL_STEP_REWARD_MAX))
    if mean and low and high and lately(mean) and lately(low):
        lowest, highest, now = min(map(median, windows(low))), _reached(high.y), median(lately(mean))
        if highest > lowest and now >= lowest + CEILING * (highest - lowest):
            yield f"a mean of {now:.4g} lately; hardly a step had a rollout with more than {highest:.4g}"


def _reached(values: Sequence[float]) -> float:
    """The highest value that two of any fifty in a row reached; of fewer than fifty, two of them all."""
    size = min(CEILING_STEPS, len(values))
    return max(nlargest(2, values[end - size : end])[-1] for end in range(len(values), size - 1, -size))


def grader_failures(run: History) -> Iterator[str]:
    calls, failures = Counter[str](), dict[str, Counter[str]]()
    for totals in run.totals(names.RL_GRADER_DURATION):  # one for each attempt
        calls[totals.of(names.ATTR_RL_TERM)] += totals.points[-1][1].count if totals.points else 0
    for course in run.courses(names.RL_GRADER_FAILURES):  # one for each cause
        failed = sum(more for *_, more in marks.gains(course))
        causes = failures.setdefault(course.of(names.ATTR_RL_TERM), Counter())
        causes[course.of(names.ATTR_RL_GRADER_FAILURE_CAUSE)] += int(failed)
    for term, causes in failures.items():
        if causes.total() and causes.total() >= GRADER_FAILURES * calls[term]:
            of = f" of {calls[term]:,}" if calls[term] else ""
            said = ", ".join(cause for cause, times in causes.most_common() if times)
            yield f"{term}: {causes.total():,}{of} calls, cause {said}"


def tool_failures(run: History) -> Iterator[str]:
    yield from _at_least(run, names.RL_STEP_TOOL_FAILURE_RATIO, TOOL_FAILURES, "{value:.0%} of the calls lately")


def held_out_rising(run: History) -> Iterator[str]:
    for course in run.courses(names.SFT_EVAL_LOSS):  # one for each set
        best, lately = min(course.y), course.y[-EVALUATIONS:]
        if best > 0 and min(lately) >= (1 + HELD_OUT_MORE) * best:
            at, of = course.x[course.y.index(best)], course.of(names.ATTR_EVAL_DATASET)
            yield f"{of} from {best:.4g} at step {at:,.0f} to {lately[-1]:.4g}".strip()


def input_bound(run: History) -> Iterator[str]:
    shares = _shares(run, names.SFT_STEP_TIMING, names.ATTR_SFT_STEP_PHASE.name, names.SftStepPhase.INPUT)
    if shares and median(shares) >= INPUT_SHARE:
        yield f"{median(shares):.0%} of a step's time lately went into waiting for its input"


def generation_bound(run: History) -> Iterator[str]:
    shares = _shares(run, names.RL_STEP_TIMING, names.ATTR_RL_STEP_PHASE.name, names.RlStepPhase.GEN)
    if shares and median(shares) >= GENERATION_SHARE:
        yield f"{median(shares):.0%} of a step's time lately went into generation"
    for course in run.courses(names.RL_IDLE):
        idle = lately(course)
        if idle and median(idle) >= WAITING_SHARE:
            yield f"the {course.of(names.ATTR_RL_ROLE)} waited for {median(idle):.0%} of a step lately"


def xids(run: History) -> Iterator[str]:
    yield from (mark.text for mark in marks.xids(run))


def repairs(run: History) -> Iterator[str]:
    for course in run.courses(names.GPU_MEMORY_REPAIR_PENDING):
        if course.y[-1]:
            yield f"{gpu_name(course)}: a row or page waits for a reset of the GPU"


def dropped(run: History) -> Iterator[str]:
    for course in run.courses(names.TELEMETRY_DROPPED):
        steps = sum(more for *_, more in marks.gains(course))
        if steps:
            yield f"{steps:,.0f} steps, reason {course.of(names.ATTR_TELEMETRY_REASON)}"


def _at_least(run: History, metric: Metric, threshold: float, words: str) -> Iterator[str]:
    course = run.course(metric)
    values = lately(course) if course else ()
    if values and median(values) >= threshold:
        yield words.format(value=median(values))


def _shares(run: History, metric: Metric, attribute: str, part: str) -> list[float]:
    """Which share of the newest steps a phase took, of all phases that are parts of a step."""
    courses = {course.labels.get(attribute): course for course in run.courses(metric)}
    if part not in courses:
        return []
    parts = rl_panels.PHASES if metric is names.RL_STEP_TIMING else sft_panels.PHASES
    by_step = {name: dict(zip(course.x, course.y, strict=True)) for name, course in courses.items() if name in parts}
    steps = courses[part].x[-window(courses[part]) :]
    if len(steps) < LATELY_LEAST:
        return []
    wholes = [sum(values.get(step, 0.0) for values in by_step.values()) for step in steps]
    return [by_step[part][step] / whole for step, whole in zip(steps, wholes, strict=True) if whole]
