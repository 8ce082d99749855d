"""Gauges over time. Each step is a point of every gauge, so an export has thousands of points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, overload

from opentelemetry.sdk.metrics.export import NumberDataPoint

from akka_otel_callbacks.common.vocabulary.points import Attributes, Point


@dataclass(slots=True)
class Course:
    """One series: its values and their times."""

    attributes: Attributes
    times_ns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def points(self) -> Iterator[NumberDataPoint]:
        for time_ns, value in zip(self.times_ns, self.values, strict=True):
            yield NumberDataPoint(self.attributes, 0, time_ns, value)


class Courses(Sequence[NumberDataPoint]):
    """The points of one gauge, series by series.

    OTLP is written from the series. The SDK's points, of which one takes longer to make than to send, are made for
    whoever reads them, such as its console exporter.
    """

    def __init__(self) -> None:
        self._courses: dict[int, Course] = {}

    @classmethod
    def of(cls, points: Sequence[NumberDataPoint]) -> Courses:
        """The series of a gauge, from the SDK's points or from our own."""
        if isinstance(points, cls):
            return points
        courses = cls()
        for point in points:
            attributes: Any = {} if point.attributes is None else point.attributes
            courses.add(point.time_unix_nano, [(point.value, attributes)])
        return courses

    def add(self, time_ns: int, points: Sequence[Point]) -> None:
        """Adds the points of one time. Points with the same attributes object are of one series."""
        courses = self._courses
        for value, attributes in points:
            course = courses.get(id(attributes))
            if course is None:
                course = courses[id(attributes)] = Course(attributes)
            course.times_ns.append(time_ns)
            course.values.append(value)

    def series(self) -> list[Course]:
        return [*self._courses.values()]

    def __iter__(self) -> Iterator[NumberDataPoint]:
        return chain.from_iterable(course.points() for course in self._courses.values())

    def __len__(self) -> int:
        return sum(len(course.values) for course in self._courses.values())

    @overload
    def __getitem__(self, at: int) -> NumberDataPoint: ...

    @overload
    def __getitem__(self, at: slice) -> list[NumberDataPoint]: ...

    def __getitem__(self, at: int | slice) -> NumberDataPoint | list[NumberDataPoint]:
        return [*self][at]
