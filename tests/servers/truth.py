"""What runs had at their ends, from their own files, and what that gives for a simple query. No server is asked."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from akka_otel_callbacks.common.vocabulary import names
from tests.servers.live import Recording
from tests.support.points import Point, newest
from tools.prometheus import Dialect, label_name, series_name

METRICS = {metric.name: metric for metric in names.METRICS}
PROMOTED = [attribute.name for attribute in names.PROMOTED_ATTRIBUTES]
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
SELECTOR = r"(\w+)\s*(?:\{([^{}]*)\})?"
SIMPLE = re.compile(rf"(?:(max|min|sum|count)(?: by \(([^()]*)\))? ?\(\s*)?{SELECTOR}\s*(\))?", re.DOTALL)
AGGREGATIONS = {"max": max, "min": min, "sum": sum, "count": len}
Labels = Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """One series at the end of its run."""

    series: str
    labels: Labels
    value: float


class Truth:
    """The figures that the newest export of each process has, named as a dialect names them."""

    def __init__(self, recordings: Iterable[Recording], dialect: Dialect) -> None:
        self.figures = [
            figure
            for recording in recordings
            for point in _latest(recording.files)
            if point.name in METRICS
            for figure in _figures(point, dialect)
        ]

    def select(self, series: str, matchers: str = "") -> list[Figure]:
        """The figures of a series that PromQL's matchers, without their braces, select."""
        asked = MATCHER.findall(matchers)
        return [f for f in self.figures if f.series == series and all(_fits(f.labels, *one) for one in asked)]

    def value(self, series: str, matchers: str = "") -> float:
        """The value of the only one of them."""
        (figure,) = self.select(series, matchers)
        return figure.value

    def of(self, expression: str) -> list[float] | None:
        """The values of a query's result, sorted; None for anything but a series or one aggregation of a series."""
        simple = SIMPLE.fullmatch(expression.strip())
        if simple is None or (simple[1] is None) != (simple[5] is None):
            return None
        aggregation, by, series, matchers, _ = simple.groups()
        found = self.select(series, matchers or "")
        if aggregation is None:
            return sorted(figure.value for figure in found)
        groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for figure in found:
            groups[tuple(figure.labels.get(label.strip(), "") for label in (by or "").split(","))].append(figure.value)
        return sorted(float(AGGREGATIONS[aggregation](values)) for values in groups.values())


def _latest(points: Iterable[Point]) -> Iterator[Point]:
    """What the newest export of each process shows at its own time."""
    processes: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        processes[point.resource[names.ATTR_SERVICE_INSTANCE_ID.name]].append(point)
    for process in processes.values():
        yield from newest([point for point in process if point.export == process[-1].export])


def _figures(point: Point, dialect: Dialect) -> Iterator[Figure]:
    promoted = {key: point.resource[key] for key in PROMOTED if key in point.resource}
    labels = {label_name(key, dialect): _text(value) for key, value in {**promoted, **point.attributes}.items()}
    series = series_name(METRICS[point.name], dialect)
    if point.histogram is None:
        assert point.value is not None
        yield Figure(series, labels, float(point.value))
        return
    yield Figure(f"{series}_count", labels, point.histogram.count)
    if point.histogram.sum is not None:
        yield Figure(f"{series}_sum", labels, point.histogram.sum)
    for bound, count in zip(point.histogram.bounds, accumulate(point.histogram.counts), strict=False):
        yield Figure(f"{series}_bucket", {**labels, "le": f"{float(bound)}"}, count)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fits(labels: Labels, label: str, operator: str, wanted: str) -> bool:
    found = labels.get(label, "")
    equal = found == wanted if operator in ("=", "!=") else re.fullmatch(wanted, found) is not None
    return equal is (operator in ("=", "=~"))
