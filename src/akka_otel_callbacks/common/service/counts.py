"""Counters that grow as things happen, on whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes, Point


class Counts:
    """Totals since the process started, by metric and attributes.

    Args:
        metrics: the counters.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics
        self._totals: dict[Metric, dict[frozenset[tuple[str, object]], Point]] = {}
        self._lock = threading.Lock()

    def add(self, metric: Metric, attributes: Attributes, amount: float = 1) -> None:
        """Adds to a series, which begins with its first amount.

        Args:
            metric: one of the counters.
            attributes: those of the series.
            amount: what is added, in the metric's unit; not below 0.
        """
        key = frozenset(attributes.items())
        with self._lock:
            series = self._totals.setdefault(metric, {})
            total, known = series.get(key, (0, attributes))
            series[key] = total + amount, known

    def points(self, metric: Metric) -> list[Point]:
        with self._lock:
            return [*self._totals.get(metric, {}).values()]
