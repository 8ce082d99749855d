"""The newest part of a course, and how it came there."""

from __future__ import annotations

from collections.abc import Sequence

from akka_otel_callbacks.report.course import Course

LATELY_SHARE, LATELY_LEAST, LATELY_MOST = 0.1, 5, 50
"""“Lately” is the last tenth of the steps, 5 at least and 50 at most. A run of fewer steps has no trend."""


def lately(course: Course) -> Sequence[float]:
    """Its newest values. Empty where there are too few."""
    size = window(course)
    return course.y[-size:] if len(course.y) >= size else ()


def window(course: Course) -> int:
    return min(max(round(len(course.y) * LATELY_SHARE), LATELY_LEAST), LATELY_MOST)


def windows(course: Course) -> list[Sequence[float]]:
    """Its values in whole windows, the newest last."""
    size = window(course)
    return [course.y[end - size : end] for end in range(len(course.y), size - 1, -size)][::-1]
