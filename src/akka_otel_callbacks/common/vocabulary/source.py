"""Figures that belong to no step: read anew at every export, for as long as the process has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES, Attributes, Point


class Source(Protocol):
    """Whatever can tell its figures at any time, such as the GPUs of the process."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """What it has, in the order in which an export reads it."""

    def points(self, metric: Metric) -> Iterable[Point]:
        """One metric's points now. It runs on an exporter's thread at every export, so it must only read memory."""


class Constant:
    """A figure that stays the same, such as the number of a job's devices.

    Args:
        metric: a gauge or counter of the registry.
        value: a finite number in the metric's unit.
        attributes: of its only series.
    """

    def __init__(self, metric: Metric, value: float, attributes: Attributes = NO_ATTRIBUTES) -> None:
        self.metrics = (metric,)
        self._point: Point = value, attributes

    def points(self, metric: Metric) -> Iterable[Point]:
        return (self._point,)
