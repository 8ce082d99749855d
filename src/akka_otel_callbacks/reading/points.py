"""Takes one OTLP document of metrics apart, into the points of each series. A file may have a million points, so the
loop over them does only what must be done for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from akka_otel_callbacks.reading import fields
from akka_otel_callbacks.reading.attributes import Labels, labels
from akka_otel_callbacks.reading.histogram import Histogram, explicit, exponential, summary

GAUGE, SUM = "gauge", "sum"
HISTOGRAMS: Mapping[str, Callable[[Mapping[str, Any]], Histogram]] = {
    "histogram": explicit,
    "exponentialHistogram": exponential,
    "summary": summary,
}
KINDS = {GAUGE, SUM, *HISTOGRAMS}
DELTA = 1
"""OTLP's number of a temporality."""
NO_RECORDED_VALUE = 1
"""The flag of a point that only says that its series has ended."""


class Key(NamedTuple):
    """What tells one series from another. Two scopes or kinds may share a name."""

    name: str
    labels: Labels
    scope: str
    kind: str


@dataclass(slots=True)
class Points:
    """The points of one series in one document.

    Attributes:
        delta: whether each point counts only what came since the point before it.
        start: the newest start time of a point.
        times: in Unix nanoseconds, 0 where a point does not say it.
        values: for each time a number, or the point of a histogram.
    """

    unit: str
    delta: bool
    start: int = 0
    times: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Export:
    """The points of one resource in one document. `oldest` and `newest` are the earliest and the latest time in it, in
    Unix nanoseconds, or 0 if it has no times."""

    resource: Labels
    series: dict[Key, Points]
    oldest: int = 0
    newest: int = 0


class Documents:
    """Takes documents of metrics apart. It remembers the series of earlier documents, because most of them come
    again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], list[tuple[Any, Key]]] = {}
        self._resource: tuple[Any, Labels] = None, ()

    def exports(self, document: Mapping[str, Any]) -> list[Export]:
        """What each resource of a `{"resourceMetrics": …}` document has.

        Raises:
            Malformed: it is none.
        """
        exports = []
        for of_resource in fields.mappings(document, "resourceMetrics"):
            export, times = Export(self._labels(fields.mapping(of_resource, "resource")), {}), _Times()
            for of_scope in fields.mappings(of_resource, "scopeMetrics"):
                scope = fields.text(fields.mapping(of_scope, "scope"), "name")
                for metric in fields.mappings(of_scope, "metrics"):
                    for kind in KINDS & metric.keys():
                        self._take(metric, scope, kind, export.series, times)
            said = [time for time in times.values() if time]
            export.oldest, export.newest = min(said, default=0), max(said, default=0)
            exports.append(export)
        return exports

    def _labels(self, resource: Mapping[str, Any]) -> Labels:
        """The attributes of a resource, which is mostly the same as in the document before."""
        if self._resource[0] != resource:
            self._resource = resource, labels(resource)
        return self._resource[1]

    def _take(self, metric: Mapping[str, Any], scope: str, kind: str, found: dict[Key, Points], times: _Times) -> None:
        name, unit, data = fields.text(metric, "name"), fields.text(metric, "unit"), fields.mapping(metric, kind)
        delta = kind != GAUGE and fields.whole(data, "aggregationTemporality") == DELTA
        known = self._known.setdefault((name, scope, kind), [])
        for position, points in enumerate(_by_series(list(fields.mappings(data, "dataPoints")))):
            attributes = points[0].get("attributes")
            if position >= len(known) or known[position][0] != attributes:
                known[position : position + 1] = [(attributes, Key(name, labels(points[0]), scope, kind))]
            key = known[position][1]
            to = found.get(key) or Points(unit, delta)
            _add(points, kind, to, times)
            if to.times:
                found[key] = to


def _by_series(points: list[Any]) -> Iterator[list[Any]]:
    """Groups points that follow each other with the same attributes, as all points of a series mostly do."""
    if len(points) == 1:
        yield points
        return
    attributes = [point.get("attributes") for point in points]
    starts = [at for at, (one, next_one) in enumerate(pairwise(attributes), 1) if one != next_one]
    for start, end in pairwise((0, *starts, len(points)) if points else ()):
        yield points[start:end]


def _add(points: list[Any], kind: str, to: Points, times: _Times) -> None:
    read = HISTOGRAMS.get(kind, _number)
    for point in points:
        if "flags" in point and fields.whole(point, "flags") & NO_RECORDED_VALUE:
            continue
        value = read(point)
        if value is None:
            continue
        to.values.append(value)
        to.times.append(times[point.get("timeUnixNano")])
        if kind != GAUGE:
            to.start = max(to.start, times[point.get("startTimeUnixNano")])


def _number(point: Mapping[str, Any]) -> float | None:
    value = point.get("asDouble")
    if type(value) is float:
        return value
    return fields.real(point, "asInt") if value is None else fields.real(point, "asDouble")


class _Times(dict[Any, int]):
    """Times by the text that they are written as. A document repeats each time often, and converting it costs more than
    looking it up."""

    def __missing__(self, written: Any) -> int:
        time = self[written] = fields.whole({"time": written}, "time")
        return time
