"""One series over time, as compact as a long run needs it: sixteen bytes a value, and no more than a few hundred points
of a histogram."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import lt

from akka_otel_callbacks.reading.attributes import Labels
from akka_otel_callbacks.reading.histogram import Histogram
from akka_otel_callbacks.reading.points import SUM, Key

MOST_HISTOGRAMS = 512
"""Points of a histogram that are kept at most: of more, every second is left out."""


@dataclass(slots=True)
class Series:
    """One metric with one set of attributes, over the exports that had it.

    Attributes:
        delta: whether its points only count what came since the one before.
        last_export: the number of the newest export, from 1, that had this series.
        newest: the time of its newest point.
    """

    key: Key
    unit: str
    delta: bool = False
    last_export: int = 0
    newest: int = 0
    _times: array[int] = field(default_factory=lambda: array("Q"))
    _values: array[float] = field(default_factory=lambda: array("d"))
    _in_order: bool = True
    _history: list[tuple[int, Histogram]] = field(default_factory=list)
    _newest: Histogram | None = None
    _stride: int = 1
    _came: int = 0

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def labels(self) -> Labels:
        return self.key.labels

    @property
    def total(self) -> bool:
        """Whether it is a counter, whose course is of no interest beside its last value."""
        return self.key.kind == SUM

    @property
    def times(self) -> Sequence[int]:
        """When each of the values was taken, in Unix nanoseconds, ascending; 0 where its point does not say it."""
        self._settle()
        return self._times

    @property
    def values(self) -> Sequence[float]:
        """A gauge's or a counter's values, oldest first. Empty for a histogram. Counters count from the beginning,
        also where their exports did not."""
        self._settle()
        return array("d", accumulate(self._values)) if self.delta else self._values

    @property
    def histogram(self) -> Histogram | None:
        """The newest point of a histogram, with everything that it has counted."""
        return self._newest

    @property
    def histograms(self) -> list[tuple[int, Histogram]]:
        """Points of a histogram with their times, oldest first, the newest included. `Histogram.since` tells what came
        between two of them."""
        kept = self._history if self._history[-1:] == [(self.newest, self._newest)] else [*self._history]
        if self._newest is not None and kept is not self._history:
            kept.append((self.newest, self._newest))
        return kept

    def ends_with(self, value: float) -> bool:
        """Whether that is what was added last."""
        return bool(self._values) and self._values[-1] == value

    def add(self, times: Sequence[int], values: Sequence[float]) -> None:
        """Adds values with their times, one or more."""
        if self._in_order:  # a time of 0 is not
            self._in_order = self.newest < times[0] and all(map(lt, times, times[1:]))
        self.newest = max(self.newest, *times)
        self._times.extend(times)
        self._values.extend(values)

    def add_histograms(self, times: Sequence[int], histograms: Sequence[Histogram]) -> None:
        for time, histogram in zip(times, histograms, strict=True):
            if self.delta and self._newest is not None:
                histogram = self._newest.plus(histogram)
            elif time < self.newest:
                continue
            self._newest, self.newest = histogram, max(self.newest, time)
            if self._came % self._stride == 0:
                self._history.append((self.newest, histogram))
            self._came += 1
            if len(self._history) > MOST_HISTOGRAMS:
                del self._history[1::2]
                self._stride *= 2

    def _settle(self) -> None:
        """Puts the values into the order of their times. A time that came twice counts once, with its last value; a
        value without a time stays behind the one before it."""
        if self._in_order:
            return
        latest, keys = 0, []
        for position, time in enumerate(self._times):
            latest = time or latest
            keys.append((latest, 0 if time else position + 1, time))
        by_key = dict(zip(keys, self._values, strict=True))
        ordered = sorted(by_key)
        self._times = array("Q", [time for _, _, time in ordered])
        self._values = array("d", [by_key[key] for key in ordered])
        self._in_order = 0 not in self._times
