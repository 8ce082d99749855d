"""Turns reported steps into the next board, counters and histogram records. It runs on the exporter's thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.board import NO_ATTRIBUTES, Attributes, AttributeValue, Board, Figures, Point
from akka_otel_callbacks.common.metric import Metric
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.step import DISTRIBUTIONS, GAUGES, RLStep, SFTStep, Source, Step

RecordHistogram = Callable[[Metric, float, Attributes], None]

TERM = names.ATTR_RL_TERM.name
NonFinite = tuple[str, AttributeValue | None]
"""A metric's name, and the term where the metric has one."""
WATCHED_FROM_ZERO: Mapping[type[Step], tuple[NonFinite, ...]] = {
    RLStep: (
        (names.RL_STEP_REWARD.name, None),
        (names.RL_ROLLOUT_REWARD.name, names.RlTerm.TOTAL),
        (names.RL_STEP_GRAD_NORM.name, None),
    ),
    SFTStep: ((names.SFT_STEP_LOSS.name, None), (names.SFT_STEP_GRAD_NORM.name, None)),
}
"""Whose non-finite values are published from zero, so that an alert on the increase sees the first one."""


class Recorder:
    """Holds the current board and the totals; histogram values go straight to `record_histogram`."""

    def __init__(self, step_type: type[Step], record_histogram: RecordHistogram) -> None:
        self.board = Board()
        self.steps = 0
        self.nonfinite: dict[NonFinite, int] = dict.fromkeys(WATCHED_FROM_ZERO[step_type], 0)
        self._counter = step_type.counter
        self._last_number: int | None = None
        self._record_histogram = record_histogram

    def record(self, step: Step) -> None:
        """Takes a finished step, or an amendment where the step has no number.

        A step number reported twice in a row is the same step and counts once; a number that comes again later was
        repeated after a restore and counts again.
        """
        figures = self._figures(step)
        if step.number is None:
            self.board = self.board.amended_with(figures)
        elif step.number == self._last_number:
            self.board = self.board.amended_with(figures)
            return  # its durations and rollouts are on the histograms already
        else:
            self.board = self.board.replaced_by(figures)
            self._last_number = step.number
            self.steps += 1
        self._distributions(step)

    def begin_again(self) -> None:
        """The loop starts over within the run: the next step is another one, whatever its number."""
        self._last_number = None

    def count_points(self) -> tuple[Point, ...]:
        """The step counter: no series before the first completed step, so that a long preparation is no stall."""
        return ((self.steps, NO_ATTRIBUTES),) if self.steps else ()

    def nonfinite_points(self) -> tuple[Point, ...]:
        return tuple(
            (count, {names.ATTR_TELEMETRY_METRIC.name: name} | ({} if term is None else {TERM: term}))
            for (name, term), count in self.nonfinite.items()
        )

    def _figures(self, step: Step) -> Figures:
        figures: Figures = {}
        for source in GAUGES[type(step)]:
            points = [(value, attributes) for value, attributes in self._finite(step, source)]
            if points:
                figures[source.metric] = points
        return figures

    def _distributions(self, step: Step) -> None:
        for source in DISTRIBUTIONS[type(step)]:
            for value, attributes in self._finite(step, source):
                # The SDK drops a negative record. A negative reward belongs to the bucket at or below 0; the gauges
                # keep the true mean.
                self._record_histogram(source.metric, max(value, 0.0), attributes)

    def _finite(self, step: Step, source: Source) -> Iterator[Point]:
        """The source's numbers with their attributes. A non-finite one is counted instead: the SDK would warn on
        every call and go on showing the last good value, so that a NaN loss would look healthy."""
        for raw, attributes in _labelled(getattr(step, source.attribute), source):
            value = number(raw)
            if value is None:
                continue
            if math.isfinite(value):
                yield value, attributes
            else:
                broken = (source.metric.name, attributes.get(TERM))
                self.nonfinite[broken] = self.nonfinite.get(broken, 0) + 1


def _labelled(value: Any, source: Source) -> Iterator[tuple[Any, Attributes]]:
    if value is None:
        return
    if source.by is None:
        for item in _items(value):
            yield item, NO_ATTRIBUTES
        return
    for label, labelled in value.items():
        attributes = {source.by.name: label}
        for item in _items(labelled):
            yield item, attributes


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)
