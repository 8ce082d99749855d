"""Figures from sources of their own, such as NVML: read anew at every collection, instead of reported with a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from akka_otel_callbacks.common.guard import report
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

ReadPoints = Callable[[], Iterable[Point]]


class Observed:
    """Sources by metric. A series ends when no source gives its point any more."""

    def __init__(self) -> None:
        self._sources: dict[Metric, list[ReadPoints]] = {}

    def add(self, metric: Metric, source: ReadPoints) -> Callable[[], None]:
        """Adds a source, and returns what takes it away again."""
        sources = self._sources.setdefault(metric, [])
        sources.append(source)
        return lambda: sources.remove(source)

    def points(self) -> dict[Metric, list[Point]]:
        """Reads every source. Of two that give the same series the later one counts."""
        return {metric: found for metric in [*self._sources] if (found := self._of(metric))}

    def _of(self, metric: Metric) -> list[Point]:
        series = {
            tuple(sorted(attributes.items())): (value, attributes)
            for source in tuple(self._sources[metric])
            for value, attributes in attempt(metric, source)
            if (figure := number(value)) is not None and math.isfinite(figure)
        }
        return [*series.values()]


def attempt(metric: Metric, source: ReadPoints) -> Sequence[Point]:
    """The source's points. It has no points where it fails, which must cost no other figure."""
    try:
        return [(value, clean(attributes)) for value, attributes in source()]
    except Exception as error:  # noqa: BLE001 - a source is somebody else's code
        report(f"the callback of {metric.name}", error)
        return ()
