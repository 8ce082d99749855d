"""Reads the embedded `metrics.jsonl`: OTLP/JSON lines become the series of each session that wrote to the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from akka_otel_callbacks.cli import fields
from akka_otel_callbacks.cli.histogram import Histogram, explicit, exponential
from akka_otel_callbacks.cli.lines import MALFORMED, Labels, labels, lines
from akka_otel_callbacks.common.vocabulary import names

FILE_NAME = "metrics.jsonl"
HISTOGRAMS = {"histogram": explicit, "exponentialHistogram": exponential}
SCALARS = ("gauge", "sum")
STEP_COUNTS = (names.RL_STEP_COUNT.name, names.SFT_STEP_COUNT.name)

NO_RECORDED_VALUE = 1
"""The flag of a point that only says that its series has ended."""

Key = tuple[str, Labels]


@dataclass(slots=True)
class Series:
    """One metric with one set of attributes, over the exports that had it.

    Attributes:
        total: a counter, whose course is of no interest beside its last value.
        values: a gauge's or a counter's values, oldest first; empty for a histogram.
        times: when each of these values was taken; 0 where its point does not say it.
        histogram: the newest point of a histogram.
        last_export: the number of the newest export, from 1, that had this series.
    """

    name: str
    labels: Labels
    unit: str
    total: bool = False
    values: list[float] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    histogram: Histogram | None = None
    histogram_time: int = 0
    last_export: int = 0

    def add(self, value: float | Histogram, time: int) -> None:
        if not isinstance(value, Histogram):
            self.values.append(value)
            self.times.append(time)
        elif time >= self.histogram_time:
            self.histogram, self.histogram_time = value, time

    def settle(self) -> None:
        """Puts the values into the order of their times. A time that came twice counts once, with its last value; a
        value without a time stays behind the one before it."""
        latest, keys = 0, []
        for position, time in enumerate(self.times):
            latest = time or latest
            keys.append((latest, 0 if time else position + 1))
        by_key = dict(zip(keys, self.values, strict=True))
        self.values = [by_key[key] for key in sorted(by_key)]


@dataclass(slots=True)
class Session:
    """What one attempt of one process exported: its resource, and its series by name and labels.

    Attributes:
        stepwise: the gauges that have a point for each step. An export ends such a gauge with the figure that holds
            now, which is mostly the one of the last step once more.
        newest: the time of the newest point.
    """

    resource: Mapping[str, str]
    exports: int = 0
    series: dict[Key, Series] = field(default_factory=dict)
    stepwise: set[Key] = field(default_factory=set)
    newest: int = 0

    def sorted_series(self) -> list[Series]:
        return [self.series[key] for key in sorted(self.series)]

    def is_current(self, series: Series) -> bool:
        """Whether the newest export still had the series; one that it lacks has ended."""
        return series.last_export == self.exports


@dataclass(slots=True)
class Recording:
    """A file's sessions in the order of their newest export, and how many of its lines could be read."""

    sessions: list[Session] = field(default_factory=list)
    lines: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class _Point:
    """`start` and `time` in Unix nanoseconds, 0 where the point does not say it."""

    name: str
    labels: Labels
    unit: str
    total: bool
    start: int
    time: int
    value: float | Histogram

    @property
    def key(self) -> Key:
        return self.name, self.labels


def other_processes(path: Path) -> list[Path]:
    """The files of the run's further processes, beside its `metrics.jsonl`."""
    return sorted(path.parent.glob("metrics-*.jsonl"))


def read(path: Path) -> Recording:
    """Reads a `metrics.jsonl`. A line that is no OTLP metrics document, such as one torn by a crash, is counted and
    skipped as a whole.

    Raises:
        OSError: it is no file, or cannot be opened or read.
    """
    recording, sessions = Recording(), _Sessions()
    for line in lines(path):
        recording.lines += 1
        try:
            exports = list(_exports(json.loads(line)))
        except MALFORMED:
            recording.unreadable += 1
            continue
        for resource, points in exports:
            sessions.add(resource, points)
    recording.sessions = sessions.settled()
    return recording


class _Sessions:
    """Sorts exports into sessions: one for each resource, and a new one where the same resource counts anew, as a
    second training in one notebook may."""

    def __init__(self) -> None:
        self._ended: list[Session] = []
        self._open: dict[Labels, Session] = {}

    def add(self, resource: Labels, points: list[_Point]) -> None:
        session = self._open.pop(resource, None)
        if session is not None and _counts_anew(session, points):
            self._ended.append(session)
            session = None
        session = session or Session(dict(resource))
        self._open[resource] = session  # last in the order, because it is the newest now
        session.exports += 1
        now = _now(session, points)
        for point in points:
            new = Series(point.name, point.labels, point.unit, point.total)
            series = session.series.setdefault(point.key, new)
            of_a_step = point.key in session.stepwise and point.time < now
            if not of_a_step:
                series.last_export = session.exports
            if of_a_step or point.key not in session.stepwise or series.values[-1:] != [point.value]:
                series.add(point.value, point.time)
            session.newest = max(session.newest, point.time)

    def settled(self) -> list[Session]:
        sessions = [session for session in (*self._ended, *self._open.values()) if session.series]
        for session in sessions:
            for series in session.series.values():
                series.settle()
        return sessions


def _now(session: Session, points: list[_Point]) -> int:
    """Up to when this export tells the steps: the newest time of a gauge that has a point for each of them."""
    times: dict[Key, list[int]] = {}
    for point in points:
        if not point.total and not isinstance(point.value, Histogram):
            times.setdefault(point.key, []).append(point.time)
    session.stepwise.update(key for key, several in times.items() if len({*several} - {0}) > 1)
    return max((time for key in session.stepwise & times.keys() for time in times[key]), default=0)


def _counts_anew(session: Session, points: list[_Point]) -> bool:
    """Whether the steps that the session counts are counted by somebody who began after its newest point."""
    counts = (point for point in points if point.name in STEP_COUNTS and point.key in session.series)
    return any(point.start > session.newest for point in counts)


def _exports(document: Any) -> Iterator[tuple[Labels, list[_Point]]]:
    """The points of each resource of the document."""
    if not isinstance(document, dict) or not isinstance(document.get("resourceMetrics"), list):
        raise fields.Malformed("no metrics document")
    for resource_metrics in fields.mappings(document, "resourceMetrics"):
        resource = labels(fields.mapping(resource_metrics, "resource"))
        points = [
            point
            for scope_metrics in fields.mappings(resource_metrics, "scopeMetrics")
            for metric in fields.mappings(scope_metrics, "metrics")
            for point in _points(metric)
        ]
        yield resource, points


def _points(metric: Mapping[str, Any]) -> Iterator[_Point]:
    name, unit = fields.text(metric, "name"), fields.text(metric, "unit")
    for kind in (*SCALARS, *HISTOGRAMS):
        for point in fields.mappings(fields.mapping(metric, kind), "dataPoints"):
            if fields.whole(point, "flags") & NO_RECORDED_VALUE:
                continue
            value = HISTOGRAMS[kind](point) if kind in HISTOGRAMS else _scalar(point)
            if value is not None:
                start, time = fields.whole(point, "startTimeUnixNano"), fields.whole(point, "timeUnixNano")
                yield _Point(name, labels(point), unit, kind == "sum", start, time, value)


def _scalar(point: Mapping[str, Any]) -> float | None:
    double = fields.real(point, "asDouble")
    return fields.real(point, "asInt") if double is None else double
