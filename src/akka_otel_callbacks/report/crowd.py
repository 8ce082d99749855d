"""Draws more courses of one figure than anybody can tell apart, such as those of a cluster's GPUs: the room that all of
them fill, and those that stand out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.drawn import Drawn, Row

MOST = 16
"""Courses that are drawn one by one: eight colours, with two dashes each."""
OUTER = 4
"""How many are drawn at the lowest and at the highest side, where there are more courses than that."""
CELLS = 300
"""Parts of the x axis. The room is told for each of them."""


def outer(courses: Sequence[Course]) -> list[Course]:
    """The courses whose newest values are the lowest or the highest, in the order in which they came."""
    by_level = sorted(courses, key=lambda course: fmean(course.y[-OUTER:]))
    chosen = {*map(id, by_level[:OUTER]), *map(id, by_level[-OUTER:])}
    return [course for course in courses if id(course) in chosen]


def band(courses: Sequence[Course], unit: str, name: str, right: bool = False) -> Drawn:
    """The room that all of them fill."""
    x, lows, highs = room(courses)
    said = f"{name} lowest to highest of {len(courses)}".strip()
    return Drawn("band", unit, x, [Row(said, lows), Row(said, highs)], right)


def room(courses: Sequence[Course]) -> tuple[list[float], list[float], list[float]]:
    """The range that the courses fill: places on the x axis, and the lowest and the highest value that any course has
    there. Processes export at different times, so each place stands for a part of the axis."""
    first, last = min(course.x[0] for course in courses), max(course.x[-1] for course in courses)
    width = (last - first) / min(max(len(course.x) for course in courses), CELLS) or 1.0
    cells: dict[int, list[float]] = {}
    for course in courses:
        for x, y in zip(course.x, course.y, strict=True):
            low_high = cells.setdefault(int((x - first) / width), [y, y])
            low_high[:] = min(low_high[0], y), max(low_high[1], y)
    places = sorted(cells)
    middles = [min(first + (place + 0.5) * width, last) for place in places]
    return middles, [cells[place][0] for place in places], [cells[place][1] for place in places]
