"""The figures that the gauges show: one immutable snapshot, replaced as a whole by every step."""

from __future__ import annotations

from collections.abc import Sequence

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Figures, Point

STICKY = tuple(metric for metric in names.METRICS if metric.sticky or metric.sticky_values)


class Board:
    """Points by metric.

    A step's board holds what this step had and nothing of the step before, so that a figure that is no longer
    measured ends instead of freezing at its last value. Only what the registry marks as sticky is carried over.
    """

    __slots__ = ("_points",)

    def __init__(self, points: Figures | None = None) -> None:
        self._points = points or {}

    def points(self, metric: Metric) -> tuple[Point, ...]:
        return tuple(self._points.get(metric, ()))

    def figures(self) -> Figures:
        return self._points

    def changes(self, figures: Figures) -> Figures:
        """The figures that this board does not show yet."""
        news = {
            metric: [point for point in points if point not in self.points(metric)]
            for metric, points in figures.items()
        }
        return {metric: points for metric, points in news.items() if points}

    def replaced_by(self, figures: Figures) -> Board:
        """The board of the next step: its figures, and the sticky ones of this board that it does not have."""
        sticky = {
            metric: kept
            for metric in STICKY
            if metric in self._points and (kept := _sticky_points(metric, self._points[metric]))
        }
        return Board(sticky).amended_with(figures)

    def amended_with(self, figures: Figures) -> Board:
        """This board with some figures set anew; everything else stays."""
        merged = {**self._points, **figures}
        for metric in self._points:
            if metric in figures:
                merged[metric] = _merge(self._points[metric], figures[metric])
        return Board(merged)


def _sticky_points(metric: Metric, points: Sequence[Point]) -> Sequence[Point]:
    if metric.sticky:
        return points
    return tuple(point for point in points if not metric.sticky_values.isdisjoint(map(str, point[1].values())))


def _merge(old: Sequence[Point], new: Sequence[Point]) -> tuple[Point, ...]:
    replaced = [attributes for _, attributes in new]
    return (*(point for point in old if point[1] not in replaced), *new)
