"""The values of histograms on their way to the exporters: those of steps, and those that belong to no step, such as how
long a run stayed in a phase."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from akka_otel_callbacks.common.recording.distributions import Distribution, Explicit, Exponential
from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes

MOST_WAITING = 4096
"""Values of one series that are kept until they are counted."""
Series = tuple[Metric, tuple[object, ...]]


class Distributed(NamedTuple):
    """Values of one histogram series."""

    metric: Metric
    attributes: Attributes
    values: Sequence[float]


class Tally:
    """The values of one series, as they come. They are counted when somebody wants to know, or when many wait: to count
    the values of a hundred steps takes hardly longer than to count those of one."""

    def __init__(self, metric: Metric, attributes: Attributes) -> None:
        self.metric, self.attributes = metric, attributes
        self._waiting: list[float] = []
        self._counted: Distribution | None = None

    def add(self, values: Iterable[float]) -> None:
        self._waiting += values
        if len(self._waiting) > MOST_WAITING:
            self.counted()

    def counted(self) -> Distribution:
        """The distribution of all values so far."""
        if self._waiting or self._counted is None:
            new = self._of(self._waiting)
            self._counted = new if self._counted is None else self._counted + new  # type: ignore[operator]
            self._waiting = []
        return self._counted

    def include(self, other: Tally) -> None:
        """Counts the values of another tally of the series, too."""
        self._counted = self.counted() + other.counted()  # type: ignore[operator]

    def _of(self, values: Iterable[float]) -> Distribution:
        return Exponential.of(values) if self.metric.exponential else Explicit.of(values, self.metric.buckets)


class Inbox:
    """What one exporter has not collected yet. It needs bounded memory for each series, however many values come."""

    def __init__(self) -> None:
        self._waiting: dict[Series, Tally] = {}
        self._lock = threading.Lock()

    def add(self, distributions: Iterable[Distributed]) -> None:
        with self._lock:
            for metric, attributes, values in distributions:
                series = metric, (*attributes.items(),)
                tally = self._waiting.get(series)
                if tally is None:
                    tally = self._waiting[series] = Tally(metric, attributes)
                tally.add(values)

    def take(self) -> dict[Series, Tally]:
        """Everything that came since the last call."""
        with self._lock:
            taken, self._waiting = self._waiting, {}
        return taken


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
        for inbox in self._inboxes:
            inbox.add((Distributed(metric, attributes, (value,)),))
