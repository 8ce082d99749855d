"""Reads the embedded `metrics.jsonl`: OTLP/JSON lines become the series of each session that wrote to the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from akka_otel_callbacks.cli.histogram import Histogram, explicit, exponential

FILE_NAME = "metrics.jsonl"
HISTOGRAMS = {"histogram": explicit, "exponentialHistogram": exponential}
SCALARS = ("gauge", "sum")

Labels = tuple[tuple[str, str], ...]
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What a line that is no OTLP document raises while it is read."""


@dataclass(slots=True)
class Series:
    """One metric with one set of attributes, over the exports that had it.

    Attributes:
        total: a counter, whose course is of no interest beside its last value.
        values: a gauge's or a counter's value at each of these exports, oldest first; empty for a histogram.
        histogram: the newest point of a histogram.
        last_export: the number of the newest export, from 1, that had this series.
    """

    name: str
    labels: Labels
    unit: str
    total: bool = False
    values: list[float] = field(default_factory=list)
    histogram: Histogram | None = None
    last_export: int = 0


@dataclass(slots=True)
class Session:
    """What one process exported: its resource, and its series by name and labels."""

    resource: Mapping[str, str]
    exports: int = 0
    series: dict[tuple[str, Labels], Series] = field(default_factory=dict)

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
    resource: Labels
    name: str
    labels: Labels
    unit: str
    total: bool
    value: float | Histogram


def other_processes(path: Path) -> list[Path]:
    """The files of the run's further processes, beside its `metrics.jsonl`."""
    return sorted(path.parent.glob("metrics-*.jsonl"))


def read(path: Path) -> Recording:
    """Reads a `metrics.jsonl`. A line that is no OTLP metrics document, such as one torn by a crash, is counted and
    skipped as a whole.

    Raises:
        OSError: the file cannot be opened or read.
    """
    recording = Recording()
    sessions: dict[Labels, Session] = {}
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            recording.lines += 1
            try:
                points = list(_points(json.loads(line)))
            except MALFORMED:
                recording.unreadable += 1
                continue
            _add(sessions, points)
    recording.sessions = list(sessions.values())
    return recording


def _add(sessions: dict[Labels, Session], points: list[_Point]) -> None:
    for resource in dict.fromkeys(point.resource for point in points):
        session = sessions.pop(resource, None) or Session(dict(resource))
        sessions[resource] = session  # last in the order, because it is the newest now
        session.exports += 1
    for point in points:
        session = sessions[point.resource]
        new = Series(point.name, point.labels, point.unit, point.total)
        series = session.series.setdefault((point.name, point.labels), new)
        series.last_export = session.exports
        if isinstance(point.value, Histogram):
            series.histogram = point.value
        else:
            series.values.append(point.value)


def _points(document: Any) -> Iterator[_Point]:
    for resource_metrics in document["resourceMetrics"]:
        resource = _labels(resource_metrics.get("resource", {}))
        for scope_metrics in resource_metrics.get("scopeMetrics", ()):
            for metric in scope_metrics.get("metrics", ()):
                name, unit, total = _text(metric["name"]), _text(metric.get("unit", "")), "sum" in metric
                for point, value in _values(metric):
                    yield _Point(resource, name, _labels(point), unit, total, value)


def _values(metric: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], float | Histogram]]:
    for kind in SCALARS:
        for point in metric.get(kind, {}).get("dataPoints", ()):
            if "asDouble" in point or "asInt" in point:
                yield point, float(point.get("asDouble", point.get("asInt")))
    for kind, parse in HISTOGRAMS.items():
        for point in metric.get(kind, {}).get("dataPoints", ()):
            yield point, parse(point)


def _labels(holder: Mapping[str, Any]) -> Labels:
    pairs = ((_text(attribute["key"]), attribute["value"]) for attribute in holder.get("attributes", ()))
    return tuple(sorted((key, ", ".join(str(item) for item in value.values())) for key, value in pairs))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
