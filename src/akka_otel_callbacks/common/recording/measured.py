"""Values of histograms that belong to no step, such as how long a run stayed in a phase: recorded as they come."""

from __future__ import annotations

import threading

from akka_otel_callbacks.common.recording.distributions import Distribution, Explicit, Exponential
from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes

Series = tuple[Metric, tuple[object, ...]]


class Inbox:
    """What one exporter has not collected yet. It holds a distribution for each series, however many values come."""

    def __init__(self) -> None:
        self._waiting: dict[Series, tuple[Attributes, Distribution]] = {}
        self._lock = threading.Lock()

    def add(self, metric: Metric, attributes: Attributes, distribution: Distribution) -> None:
        series = metric, (*attributes.items(),)
        with self._lock:
            known = self._waiting.get(series)
            total = distribution if known is None else known[1] + distribution  # type: ignore[operator]  # one kind
            self._waiting[series] = attributes, total

    def take(self) -> list[tuple[Metric, Attributes, Distribution]]:
        """Everything that came since the last call."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return [(metric, *found) for (metric, _), found in taken.items()]


class Measured:
    """Hands each value to the inbox of every exporter, on whichever thread it comes."""

    def __init__(self) -> None:
        self._inboxes: list[Inbox] = []

    def inbox(self) -> Inbox:
        """A new inbox, which gets what is recorded from now on."""
        self._inboxes.append(Inbox())
        return self._inboxes[-1]

    def record(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Adds one value to a histogram's series.

        Args:
            metric: a histogram of the registry.
            value: a finite number in the metric's unit.
            attributes: the attributes of the series, always in the same order.
        """
        attributes = clean(attributes)
        distribution = Exponential.of([value]) if metric.exponential else Explicit.of([value], metric.buckets)
        for inbox in self._inboxes:
            inbox.add(metric, attributes, distribution)
