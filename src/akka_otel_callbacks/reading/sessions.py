"""Sorts what processes exported into sessions: one for each attempt of each process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.scope import SCOPE
from akka_otel_callbacks.reading.attributes import Labels
from akka_otel_callbacks.reading.points import GAUGE, HISTOGRAMS, Export, Key, Points
from akka_otel_callbacks.reading.series import Series

STEP_COUNTS = (names.RL_STEP_COUNT, names.SFT_STEP_COUNT)
STEP_COUNT_NAMES = [metric.name for metric in STEP_COUNTS]


@dataclass(slots=True)
class Session:
    """What one attempt of one process exported: its resource and its series.

    Attributes:
        exports: how many there were. What is sent in parts, all of one time, is one.
        stepwise: the gauges that have a point for each step. An export ends such a gauge with the figure that holds
            now, which is mostly the one of the last step once more.
        oldest: the earliest time of a point, or since when one counts; 0 where no point says a time.
        newest: the time of the newest point.
    """

    resource: Mapping[str, str]
    exports: int = 0
    series: dict[Key, Series] = field(default_factory=dict)
    stepwise: set[Key] = field(default_factory=set)
    oldest: int = 0
    newest: int = 0

    def sorted_series(self) -> list[Series]:
        return [self.series[key] for key in sorted(self.series)]

    def of(self, metric: Metric | str) -> list[Series]:
        """The series of a metric, by their labels: ours, where somebody else has one by the same name."""
        name = metric if isinstance(metric, str) else metric.name
        found = [self.series[key] for key in sorted(self.series) if key.name == name]
        return [series for series in found if series.key.scope == SCOPE] or found

    def is_current(self, series: Series) -> bool:
        """Whether the newest export still had the series; one that it lacks has ended."""
        return series.last_export == self.exports

    def add(self, export: Export) -> None:
        """Adds one export, or a part of one."""
        self.exports += not export.newest or export.newest != self.newest
        self.oldest = min(filter(None, [self.oldest, export.oldest]), default=0)
        self.newest = max(self.newest, export.newest)
        now = self._now(export)
        for key, points in export.series.items():
            series = self.series.get(key)
            if series is None:
                series = self.series[key] = Series(key, points.unit, points.delta)
            if key in self.stepwise:
                self._add_steps(series, points, now)
                continue
            series.last_export = self.exports
            if key.kind in HISTOGRAMS:
                series.add_histograms(points.times, points.values)
            else:
                series.add(points.times, points.values)

    def _add_steps(self, series: Series, points: Points, now: int) -> None:
        times, values = points.times, points.values
        steps = len(times)
        while steps and times[steps - 1] >= now:  # the points of a series are mostly in order
            steps -= 1
        if steps:
            series.add(times[:steps], values[:steps])
        for position in range(steps, len(times)):
            series.last_export = self.exports
            if not series.ends_with(values[position]):
                series.add(times[position : position + 1], values[position : position + 1])

    def _now(self, export: Export) -> int:
        """Up to when this export tells the steps: the newest time of a gauge that has a point for each of them."""
        now = 0
        for key, points in export.series.items():
            if key.kind == GAUGE:
                if len(points.times) > 1 and key not in self.stepwise and len({*points.times} - {0}) > 1:
                    self.stepwise.add(key)
                if key in self.stepwise:
                    now = max(now, *points.times)
        return now

    def is_counted_anew(self, export: Export) -> bool:
        """Whether the steps that the session counts are counted by somebody who began after its newest point."""
        counted = [key for key in export.series.keys() & self.series.keys() if key.name in STEP_COUNT_NAMES]
        return any(export.series[key].start > self.newest for key in counted)


class Sessions:
    """The sessions of any number of files. Each resource has one. It has a further one if its counters begin again from
    zero, as with a second training in one notebook."""

    def __init__(self) -> None:
        self._ended: list[Session] = []
        self._open: dict[Labels, Session] = {}

    def add(self, export: Export) -> None:
        session = self._open.pop(export.resource, None)
        if session is not None and session.is_counted_anew(export):
            self._ended.append(session)
            session = None
        session = session or Session(dict(export.resource))
        self._open[export.resource] = session  # last in the order, because it is the newest now
        session.add(export)

    def all(self) -> list[Session]:
        """All sessions, in the order of their newest exports."""
        found = [session for session in (*self._ended, *self._open.values()) if session.series]
        return sorted(found, key=lambda session: session.newest)
