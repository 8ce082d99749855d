"""The ways to draw figures, and what each makes of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.report import crowd, heat
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.drawn import Drawn, Row
from akka_otel_callbacks.report.heat import Column
from akka_otel_callbacks.report.history import OF_STEPS, History

COLUMNS = 120
"""Columns of a heat map at most: each is then still as wide as a finger's line on a laptop."""


class Drawing(Protocol):
    """One way to draw some figures."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """What it shows."""
        ...

    def drawn(self, run: History) -> Iterator[Drawn]:
        """What is drawn of a run: nothing where the run lacks the figures."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A figure over the steps.

    Attributes:
        name: in the legend. With `by` it stands before the attribute's value.
        by: the attribute that tells the metric's courses apart.
        and_by: a second one.
        without: values of it that are not drawn.
        only: the value of it that is drawn alone.
        called: makes of an attribute's value what people call it.
        unless: a figure that says more, so that this one is drawn only where that one is absent.
    """

    metric: Metric
    name: str = ""
    by: Attribute | None = None
    and_by: Attribute | None = None
    without: Sequence[str] = ()
    only: str = ""
    right: bool = False
    quiet: bool = False
    form: str = "line"
    called: Callable[[str], str] = str
    unless: Metric | None = None

    @property
    def metrics(self) -> Sequence[Metric]:
        return (self.metric,)

    def drawn(self, run: History) -> Iterator[Drawn]:
        if self.unless and run.courses(self.unless):
            return
        found = [course for course in run.courses(self.metric) if self._is_drawn(course)]
        if len(found) > crowd.MOST:
            yield crowd.band(found, self.metric.unit, self.name, self.right)
            found = crowd.outer(found)
        for course in found:
            x, values = with_gaps(run, self.metric, course)
            yield Drawn(self.form, self.metric.unit, x, [Row(self._named(course), values)], self.right, self.quiet)

    def _is_drawn(self, course: Course) -> bool:
        value = course.of(self.by) if self.by else ""
        return value not in self.without and (not self.only or value == self.only)

    def _named(self, course: Course) -> str:
        value = course.of(self.by) if self.by and not self.only else ""
        further = course.of(self.and_by) if self.and_by else ""
        return " ".join(part for part in (self.name, self.called(value) if value else "", further) if part)


@dataclass(frozen=True, slots=True)
class Band:
    """The room between two figures of the same steps."""

    low: Metric
    high: Metric
    name: str

    @property
    def metrics(self) -> Sequence[Metric]:
        return self.low, self.high

    def drawn(self, run: History) -> Iterator[Drawn]:
        low, high = run.course(self.low), run.course(self.high)
        if low and high:
            x, (lows, highs) = together([low, high], run.steps)
            yield Drawn("band", self.low.unit, x, [Row(self.name, lows), Row(self.name, highs)], quiet=True)


@dataclass(frozen=True, slots=True)
class Stack:
    """Figures that add up, one upon the other. Only those of the same step are added.

    Attributes:
        by: the attribute that tells them apart.
        order: the values that are parts, from the bottom up. What has another value is no part, or one of a part.
        whole: the value that stands for all together; what the parts leave of it is drawn as `rest`.
    """

    metric: Metric
    by: Attribute
    order: Sequence[str]
    whole: str = ""
    rest: str = "other"

    @property
    def metrics(self) -> Sequence[Metric]:
        return (self.metric,)

    def drawn(self, run: History) -> Iterator[Drawn]:
        courses = {course.of(self.by): course for course in run.courses(self.metric)}
        parts = [name for name in self.order if name in courses]
        if not parts:
            return
        whole = courses.get(self.whole)
        x, columns = together([courses[name] for name in parts] + ([whole] if whole else []))
        rows = [Row(name, values) for name, values in zip(parts, columns, strict=False)]
        if whole:
            rows.append(Row(self.rest, _left(columns[-1], columns[:-1])))
        yield Drawn("stack", self.metric.unit, x, [row for row in rows if any(row.values)])


@dataclass(frozen=True, slots=True)
class Means:
    """The mean of what a histogram gained from one export to the next, at the newest step of each."""

    metric: Metric
    by: Attribute
    name: str

    @property
    def metrics(self) -> Sequence[Metric]:
        return (self.metric,)

    def drawn(self, run: History) -> Iterator[Drawn]:
        courses: dict[str, dict[float, float]] = {}
        for totals in run.totals(self.metric):
            course, count, total = courses.setdefault(totals.of(self.by), {}), 0, 0.0
            for step, histogram in totals.points:
                if histogram.mean is not None and histogram.total is not None and histogram.count > count:
                    course[step] = (histogram.total - total) / (histogram.count - count)
                    count, total = histogram.count, histogram.total
        found = [Course({self.by.name: label}, [*of], [*of.values()]) for label, of in sorted(courses.items()) if of]
        if len(found) > crowd.MOST:
            yield crowd.band(found, self.metric.unit, self.name)
            found = crowd.outer(found)
        for one in found:
            yield Drawn("line", self.metric.unit, one.x, [Row(f"{self.name} {one.of(self.by)}".strip(), one.y)])


@dataclass(frozen=True, slots=True)
class Heat:
    """Which share of a histogram's values fell into which bucket, from step to step."""

    metric: Metric
    labels: Mapping[str, str] = field(default_factory=dict)

    def columns(self, run: History) -> list[Column]:
        found = [one for one in run.totals(self.metric) if self.labels.items() <= one.labels.items()]
        most = max(COLUMNS // max(len(found), 1), 1)
        return sorted((c for one in found for c in heat.columns(one, most)), key=lambda column: column.until)


def with_gaps(run: History, metric: Metric, course: Course) -> tuple[Sequence[float], Sequence[float | None]]:
    """A course with None at the steps that lack the figure, so that no line leads over them. A figure that most steps
    lack, such as one that comes with the log every ten steps, stays a line."""
    if metric.name not in OF_STEPS or 2 * len(course.x) < len(run.steps):
        return course.x, course.y
    x, (values,) = together([course], run.steps)
    return x, values


def together(courses: Sequence[Course], steps: Sequence[float] = ()) -> tuple[list[float], list[list[float | None]]]:
    """All steps that at least one of the courses has, and the values of each course at these steps.

    Args:
        steps: further ones, of which those between the first and the last count.
    """
    there = {step for course in courses for step in course.x}
    first, last = min(there), max(there)
    x = sorted(there | {step for step in steps if first < step < last})
    by_step = [dict(zip(course.x, course.y, strict=True)) for course in courses]
    return x, [[values.get(step) for step in x] for values in by_step]


def _left(whole: Sequence[float | None], parts: Sequence[Sequence[float | None]]) -> list[float | None]:
    """What the parts leave of the whole, where it is known; a clock may make them a little more than the whole."""
    sums = [sum(value or 0.0 for value in values) for values in zip(*parts, strict=True)]
    return [None if all_ is None else max(all_ - some, 0.0) for all_, some in zip(whole, sums, strict=True)]
