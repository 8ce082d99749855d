"""The duration between two times that a service keeps."""

from __future__ import annotations

from collections.abc import Callable

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes


class Durations:
    """Measures what lies between two times, which may come from the clocks of two machines.

    Args:
        measure: takes a histogram, a duration in seconds and the attributes.
    """

    def __init__(self, measure: Callable[[Metric, float, Attributes], None]) -> None:
        self._measure = measure
        self._warned = False

    def add(self, metric: Metric, began_s: float, ended_s: float, attributes: Attributes) -> None:
        """Records the duration. One that would be negative is left out: nobody knows how long it was."""
        if ended_s >= began_s:
            self._measure(metric, float(ended_s - began_s), attributes)
        elif not self._warned:
            self._warned = True
            logger.warning(
                "%s: an end is %g s before its begin, so a clock is wrong. Such durations are left out",
                metric.name,
                began_s - ended_s,
            )
