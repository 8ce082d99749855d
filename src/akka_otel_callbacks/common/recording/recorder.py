"""Turns reported steps into the next board, the counters, and a record of what each of them brought. It runs on the
translator's thread."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from akka_otel_callbacks.common.clock import after, now_ns
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.board import Board
from akka_otel_callbacks.common.recording.distributions import numbers_of
from akka_otel_callbacks.common.recording.labels import Labels
from akka_otel_callbacks.common.recording.measured import Distributed
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES, Attributes, AttributeValue, Figures, Point
from akka_otel_callbacks.common.vocabulary.step import COUNTS, DISTRIBUTIONS, GAUGES, RLStep, SFTStep, Step

Counters = dict[Metric, Sequence[Point]]
Totals = dict[tuple[AttributeValue, ...], Point]

TERM = names.ATTR_RL_TERM.name
NonFinite = tuple[str, AttributeValue | None]
"""A metric's name, and the term where the metric has one."""
WATCHED_FROM_ZERO: Mapping[type[Step], tuple[NonFinite, ...]] = {
    RLStep: (
        (names.RL_STEP_REWARD.name, None),
        (names.RL_ROLLOUT_REWARD.name, names.RlTerm.TOTAL),
        (names.RL_STEP_LOSS.name, None),
        (names.RL_STEP_GRAD_NORM.name, None),
    ),
    SFTStep: ((names.SFT_STEP_LOSS.name, None), (names.SFT_STEP_GRAD_NORM.name, None)),
}
"""Whose non-finite values are published from zero, so that an alert on the increase sees the first one."""
Reason = names.TelemetryReason
_READ_GAUGES: Mapping[type[Step], Callable[[Step], tuple[Any, ...]]] = {
    kind: attrgetter(*(source.attribute for source in sources)) for kind, sources in GAUGES.items()
}
"""Reads all of them at once."""


class Record(NamedTuple):
    """What one report brought."""

    time_ns: int
    """When it was reported."""
    completes: bool
    """Whether it completed a step; an evaluation does not."""
    figures: Figures
    distributions: Sequence[Distributed]


class Snapshot(NamedTuple):
    """What holds at one moment: every figure and count in it is of the same steps."""

    board: Board
    counters: Counters


class Recorder:
    """Holds the current board and the totals, and hands each record to its listeners.

    A listener is called with `lock` held, so that whoever takes a snapshot under the lock has heard of the same steps
    as the snapshot knows.
    """

    def __init__(self, step_type: type[Step], *listeners: Callable[[Record], object]) -> None:
        self.board = Board()
        self.steps = 0
        self.without_figures: dict[str, int] = {Reason.OVERFLOW: 0, Reason.FAILED: 0}
        """Steps that the queue had no room for, and those that the telemetry failed in. They are completed steps like
        the others, so they count."""
        self.labels = Labels()
        self.nonfinite: dict[NonFinite, int] = dict.fromkeys(WATCHED_FROM_ZERO[step_type], 0)
        self.negative: Counter[AttributeValue] = Counter()
        """How many rewards were below zero, by term."""
        self.listeners = [*listeners]
        self.lock = threading.Lock()
        self.reported_ns: int | None = None
        """When the capture that is being translated was made. None is now."""
        self.counters: dict[Metric, Callable[[], Sequence[Point]]] = {
            names.TELEMETRY_NONFINITE: self.nonfinite_points,
            names.TELEMETRY_DROPPED: lambda: dropped_points(self.without_figures),
            names.TELEMETRY_OVERFLOW: self.labels.overflow_points,
            step_type.counter: self.count_points,
        }
        if step_type is RLStep:
            self.counters[names.RL_ROLLOUT_REWARD_NEGATIVE] = self.negative_points
        self._counted: dict[Metric, Totals] = {source.metric: {} for source in COUNTS[step_type]}
        """What steps reported for counters, by the values of their attributes."""
        for metric, totals in self._counted.items():
            self.counters[metric] = lambda totals=totals: tuple(totals.values())  # type: ignore[misc]
        self._last_number: int | None = None
        self.last_ns = 0
        """The latest time that was given out."""

    def record(self, step: Step) -> None:
        """Takes a finished step, or an amendment where the step has no number.

        A step number reported twice in a row is the same step and counts once; a number that comes again later was
        repeated after a restore and counts again.
        """
        nonfinite: Counter[NonFinite] = Counter()
        counts: Sequence[tuple[Metric, float, Attributes]]
        figures = _figures(step, self.labels, nonfinite)
        completes = step.number is not None and step.number != self._last_number
        repeated = step.number is not None and not completes
        if repeated:  # its durations and rollouts are on the histograms already
            figures, distributions, counts = self.board.changes(figures), [], ()
        else:
            distributions = _distributions(step, self.labels, nonfinite)
            counts = _counts(step, self.labels)
        if not (completes or figures or distributions or counts or nonfinite):
            return  # a log row that has nothing new
        with self.lock:
            time_ns = self.next_ns(self.reported_ns or now_ns())
            record = Record(time_ns, completes, figures, distributions)
            self.board = self.board.replaced_by(figures) if completes else self.board.amended_with(figures)
            if completes:
                self._last_number = step.number
                self.steps += 1
            for broken, count in nonfinite.items():
                self.nonfinite[broken] = self.nonfinite.get(broken, 0) + count
            for metric, more, attributes in counts:
                totals, series = self._counted[metric], (*attributes.values(),)
                before = totals[series][0] if series in totals else 0
                totals[series] = before + more, attributes
            for metric, attributes, values in distributions:
                if metric is names.RL_ROLLOUT_REWARD and min(values) < 0:
                    self.negative[attributes[TERM]] += sum(value < 0 for value in values)
            for listener in self.listeners:
                listener(record)

    def begin_again(self) -> None:
        """The loop starts over within the run: the next step is another one, whatever its number."""
        self._last_number = None

    def next_ns(self, time_ns: int) -> int:
        """This time, or one just after the last that was given out. Only with `lock` held."""
        self.last_ns = after(time_ns, self.last_ns)
        return self.last_ns

    def snapshot(self) -> Snapshot:
        """What holds now. The caller holds `lock`."""
        return Snapshot(self.board, {metric: points() for metric, points in self.counters.items()})

    def count_points(self) -> tuple[Point, ...]:
        """The step counter: no series before the first completed step, so that a long preparation is no stall."""
        steps = self.steps + sum(self.without_figures.values())
        return ((steps, NO_ATTRIBUTES),) if steps else ()

    def nonfinite_points(self) -> tuple[Point, ...]:
        return tuple(
            (count, {names.ATTR_TELEMETRY_METRIC.name: name} | ({} if term is None else {TERM: term}))
            for (name, term), count in self.nonfinite.items()
        )

    def negative_points(self) -> tuple[Point, ...]:
        """No series for a term that never had a negative value."""
        return tuple((count, {TERM: term}) for term, count in self.negative.items())


def dropped_points(without_figures: Mapping[str, int], thinned: int = 0, rejected: int = 0) -> tuple[Point, ...]:
    counts = {**without_figures, Reason.THINNED: thinned, Reason.REJECTED: rejected}
    return tuple((count, {names.ATTR_TELEMETRY_REASON.name: reason}) for reason, count in counts.items())


def _figures(step: Step, labels: Labels, nonfinite: Counter[NonFinite]) -> Figures:
    """The step's finite numbers by metric. A non-finite one is counted instead: the last good value would go on being
    shown, so that a NaN loss would look healthy."""
    figures: dict[Metric, Sequence[Point]] = {}
    sources = GAUGES[type(step)]
    for (_, metric, by), value in zip(sources, _READ_GAUGES[type(step)](step), strict=True):
        if value is None:
            continue
        if value.__class__ is float and math.isfinite(value):  # nearly all of them are; a tenth of a step's translation
            figures[metric] = ((value, NO_ATTRIBUTES),)
            continue
        points = []
        for raw, attributes in _series(value, metric, by, labels):
            figure = number(raw)
            if figure is None:
                continue
            if math.isfinite(figure):
                points.append((figure, attributes))
            else:
                nonfinite[metric.name, attributes.get(TERM)] += 1
        if points:
            figures[metric] = points
    return figures


def _distributions(step: Step, labels: Labels, nonfinite: Counter[NonFinite]) -> list[Distributed]:
    found = []
    for field, metric, by in DISTRIBUTIONS[type(step)]:
        value = getattr(step, field)
        if value is None:
            continue
        for values, attributes in _series(value, metric, by, labels):
            numbers, broken = numbers_of(values if isinstance(values, (list, tuple)) else (values,))
            if broken:
                nonfinite[metric.name, attributes.get(TERM)] += broken
            if numbers:
                found.append(Distributed(metric, attributes, numbers))
    return found


def _counts(step: Step, labels: Labels) -> Sequence[tuple[Metric, float, Attributes]]:
    """What the step adds to counters."""
    found = []
    for field, metric, (by, other) in COUNTS[type(step)]:
        for (value, kind), more in (getattr(step, field) or {}).items():
            attributes = labels.of(metric, by, value)
            if attributes is not None:
                found.append((metric, more, {**attributes, other.name: kind}))
    return found


def _series(value: Any, metric: Metric, by: Attribute | None, labels: Labels) -> Sequence[tuple[Any, Attributes]]:
    if by is None or not isinstance(value, (dict, Mapping)):  # to know a dict takes a tenth of knowing a Mapping
        return ((value, NO_ATTRIBUTES),)
    return [
        (figure, attributes)
        for name, figure in value.items()
        if (attributes := labels.of(metric, by, name)) is not None
    ]
