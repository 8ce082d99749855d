"""A run over its steps, whatever files, processes and attempts its figures came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import GAUGES
from akka_otel_callbacks.reading.attributes import Labels
from akka_otel_callbacks.reading.ending import Ending, How
from akka_otel_callbacks.reading.run import STEP_NUMBERS, Run
from akka_otel_callbacks.reading.series import Series
from akka_otel_callbacks.report.clock import Clock
from akka_otel_callbacks.report.course import Course, Totals

OF_STEPS = {source.metric.name for sources in GAUGES.values() for source in sources}
SUPERVISED = (names.SFT_STEP_NUMBER, names.SFT_EVAL_LOSS, names.SFT_STEP_TIMING)
BY_NAME = {metric.name: metric for metric in names.METRICS}
ABOUT = (names.ATTR_RUN_ENGINE, names.ATTR_RUN_METHOD, names.ATTR_RUN_BASE_MODEL)


class Attempt:
    """One attempt of the run.

    Attributes:
        until: the step from which on a later attempt did its steps anew, so that they do not count.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.until = float("inf")
        self.clock = clock_of(run)

    def points(self, series: Series) -> Iterator[tuple[float, float]]:
        """Step and value of each point that counts. What an export repeats of a figure that stays is no new value."""
        place = self.clock.step if series.name in OF_STEPS else self.clock.position
        stays = is_sticky(series)
        last: float | None = None
        found: dict[float, float] = {}
        for time, value in zip(series.times, series.values, strict=True):
            if time < self.clock.times[0] or not math.isfinite(value):  # done anew since, or a foreign program's
                continue
            if stays and value == last:
                continue
            found[place(time)] = last = value
        return ((x, y) for x, y in found.items() if x < self.until)

    def totals(self, series: Series) -> Totals:
        """What a histogram counted in the steps that count."""
        steps = {self.clock.step(time): histogram for time, histogram in series.histograms}
        points = [(step, histogram) for step, histogram in steps.items() if step < self.until]
        return Totals(dict(series.labels), self.clock.steps[0], points)


class History:
    """A run with all of its attempts as one course of steps. Where a later attempt did steps anew, only they count.

    Args:
        attempts: oldest first, at least one.
    """

    def __init__(self, attempts: Sequence[Run]) -> None:
        self.attempts = [*map(Attempt, attempts)]
        until = float("inf")
        for attempt in reversed(self.attempts):
            attempt.until = until
            if len(attempt.clock.steps) > 1:
                until = min(until, attempt.clock.steps[1])
        self._courses: dict[Metric, list[Course]] = {}

    @property
    def newest(self) -> Run:
        """Its newest attempt."""
        return self.attempts[-1].run

    @property
    def name(self) -> str:
        return self.newest.name

    @property
    def about(self) -> str:
        """Engine, method and model, and which attempt it is where it is not the only one."""
        said = [self.newest.resource.get(attribute.name, "").rpartition("/")[2] for attribute in ABOUT]
        if len(self.attempts) > 1:
            said.append(f"{len(self.attempts)} attempts")
        return " · ".join(filter(None, said))

    @property
    def ending(self) -> Ending:
        return self.newest.ending

    @property
    def has_ended(self) -> bool:
        return self.ending.how is not How.UNKNOWN

    @property
    def is_supervised(self) -> bool:
        """Whether it is a supervised run. One that only evaluated has no step, but other figures of a supervised
        run."""
        return any(self.courses(metric) for metric in SUPERVISED)

    @cached_property
    def steps(self) -> list[float]:
        """The numbers of the completed steps, ascending."""
        return sorted({x for metric in STEP_NUMBERS for course in self.courses(metric) for x in course.x})

    @cached_property
    def clock(self) -> list[tuple[float, float]]:
        """Steps with when they were complete, in seconds since the run began."""
        knots = {
            step: (time - self.start_ns) / 1e9
            for attempt in reversed(self.attempts)
            for step, time in zip(attempt.clock.steps, attempt.clock.times, strict=True)
            if step < attempt.until
        }
        return sorted(knots.items())

    @property
    def start_ns(self) -> int:
        return min(attempt.clock.times[0] for attempt in self.attempts)

    @property
    def newest_ns(self) -> int:
        """When it was last heard of."""
        return max(attempt.run.newest_ns for attempt in self.attempts)

    @property
    def latest(self) -> tuple[float, float]:
        """The step at which the run was last heard of, and the seconds from its begin until then."""
        return self.attempts[-1].clock.position(self.newest_ns), (self.newest_ns - self.start_ns) / 1e9

    def courses(self, metric: Metric) -> list[Course]:
        """A gauge or a counter, by its attributes."""
        if metric not in self._courses:
            self._courses[metric] = self._courses_of(metric)
        return self._courses[metric]

    def course(self, metric: Metric, **labels: str) -> Course | None:
        """The only one, or the one with these attributes."""
        for course in self.courses(metric):
            if labels.items() <= course.labels.items():
                return course
        return None

    def totals(self, metric: Metric) -> list[Totals]:
        """A histogram, by its attributes and by attempt."""
        return [attempt.totals(series) for attempt, series in self._series(metric) if series.histograms]

    def _courses_of(self, metric: Metric) -> list[Course]:
        points: dict[Labels, dict[float, float]] = {}
        for attempt, series in self._series(metric):
            points.setdefault(series.labels, {}).update(attempt.points(series))
        return [
            Course(dict(labels), *zip(*sorted(found.items()), strict=True))
            for labels, found in sorted(points.items())
            if found
        ]

    def _series(self, metric: Metric) -> Iterator[tuple[Attempt, Series]]:
        for attempt in self.attempts:
            for session in attempt.run.sessions:
                yield from ((attempt, series) for series in session.of(metric))


def histories(runs: Iterable[Run]) -> list[History]:
    """The runs with their attempts, the one that was heard of last at the end. Anything else that exported to the same
    Collector, such as a judge's server, comes before them: it is no training."""
    attempts: dict[str, list[Run]] = {}
    for run in runs:
        attempts.setdefault(run.name, []).append(run)
    found = [History(sorted(of_one, key=lambda run: run.start_ns)) for of_one in attempts.values()]
    return sorted(found, key=lambda history: (history.newest.is_training, history.newest_ns))


def is_sticky(series: Series) -> bool:
    """Whether a figure stays until there is a new one, so that every export has it again."""
    metric = BY_NAME.get(series.name)
    return metric is not None and (metric.sticky or any(value in metric.sticky_values for _, value in series.labels))


def clock_of(run: Run) -> Clock:
    """The clock of the process that counts the steps. Where it did steps anew, the later ones count."""
    start, complete = run.start_ns, list[tuple[int, float]]()
    for time, step in _numbered(run):
        while complete and step < complete[-1][1]:
            again = complete.pop()[0]
            start = start if complete else again
        if not complete or step > complete[-1][1]:  # an export repeats the number that holds
            complete.append((time, step))
    return Clock(start, [time for time, _ in complete], [step for _, step in complete], run.newest_ns)


def _numbered(run: Run) -> list[tuple[int, float]]:
    found = [series for metric in STEP_NUMBERS for series in (run.session.of(metric) if run.session else ())]
    return sorted(
        {time: step for series in found for time, step in zip(series.times, series.values, strict=True)}.items()
    )
