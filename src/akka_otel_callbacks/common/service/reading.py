"""Reads the service's state for the gauges, once for each collection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from akka_otel_callbacks.common.service.occupancy import METRICS, Occupancy
from akka_otel_callbacks.common.service.state import ServiceState
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

Figures = Mapping[Metric, Sequence[Point]]


class Reading:
    """The gauges' source. The first metric of a collection reads the state, and the others show the same state,
    so that claims and devices fit together. Each exporter collects on a thread of its own, and so has its own reading.

    Args:
        read: the service's callback.
        occupancy: makes points of what it returns.
    """

    metrics = METRICS

    def __init__(self, read: Callable[[], ServiceState], occupancy: Occupancy) -> None:
        self._read, self._occupancy = read, occupancy
        self._of_thread = threading.local()

    def points(self, metric: Metric) -> Sequence[Point]:
        if metric is METRICS[0]:
            self._of_thread.figures = {}  # where the state cannot be read, no gauge shows an older one
            self._of_thread.figures = self._figures()
        shown: Figures = getattr(self._of_thread, "figures", {})
        return shown.get(metric, ())

    def _figures(self) -> Figures:
        state = self._read()
        if not isinstance(state, ServiceState):
            raise TypeError(f"the state is a {type(state).__name__}, where a ServiceState is wanted")
        return self._occupancy.figures(state)
