"""Makes the OpenTelemetry data for one exporter, of everything that was recorded since its last export arrived."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    ExponentialHistogram,
    Gauge,
    Histogram,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from akka_otel_callbacks.common.clock import after, now_ns
from akka_otel_callbacks.common.export.courses import Courses
from akka_otel_callbacks.common.export.unsent import Moment, Unsent
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.recording.board import Board
from akka_otel_callbacks.common.recording.distributions import Exponential
from akka_otel_callbacks.common.recording.measured import Measured, Series, Tally
from akka_otel_callbacks.common.recording.observed import Observed
from akka_otel_callbacks.common.recording.recorder import Record, Snapshot, dropped_points
from akka_otel_callbacks.common.recording.steps import PATIENCE_S, Steps
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from akka_otel_callbacks.common.vocabulary.points import Point
from akka_otel_callbacks.common.vocabulary.scope import SCOPE, VERSION

if TYPE_CHECKING:
    from akka_otel_callbacks.common.export.user_metrics import UserMetrics

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
POWERS_OF_TWO = tuple(float(2**exponent) for exponent in range(21))
"""The buckets of an exponential histogram in Prometheus's format, which has explicit buckets only."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the exporters of one run share. A process may report no steps."""

    resource: Resource
    start_ns: int
    observed: Observed
    steps: Steps | None = None
    measured: Measured = field(default_factory=Measured)
    user_metrics: Callable[[], UserMetrics | None] = lambda: None
    """The program's own metrics, as soon as it has any."""
    is_live: bool = True
    """Whether the latest figures hold until the moment of an export, and not only at their step. Those of a past run do
    not."""


class Producer:
    """Turns what is recorded into OpenTelemetry data for one exporter. What `collect` returned stays unsent until
    `sent` says that it arrived: the steps and the changes of an export that failed are part of the next one.

    Args:
        deltas: the kinds of metric that are exported as the change since the last export, instead of the total.
        every_step: whether each step has points of its own, beside the latest figures.
        exponential: whether the exporter can carry exponential histograms; without, their buckets are powers of two.
        patience_s: how long a collection waits for the translation of what was captured before it.
    """

    def __init__(
        self,
        run: Run,
        *,
        deltas: frozenset[Kind] = frozenset(),
        every_step: bool = True,
        exponential: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._run, self._deltas, self._patience_s = run, deltas, patience_s
        self.unsent = Unsent()
        self._every_step, self._exponential = every_step, exponential
        self._inbox = run.measured.inbox()
        self._tallies: dict[Series, Tally] = {}
        self._totals: dict[Series, float] = {}
        self._sent_totals: dict[Series, float] = {}
        self._collected_ns = self._sent_ns = run.start_ns
        self._collecting = threading.Lock()
        self._moments: list[Moment] = []
        self.is_part = False
        """Whether there is more to collect than the last collection had."""
        if run.steps is not None:
            run.steps.recorder.listeners.append(self.hear)

    def hear(self, record: Record) -> None:
        if self._every_step:
            self.unsent.add(record)
        self._inbox.add(record.distributions)

    @property
    def steps(self) -> int:
        """How many steps and evaluations the last collection had."""
        return len(self._moments)

    def collect(self, most_steps: int | None = None) -> MetricsData | None:
        """What is to be exported now. None where there is nothing. Of more than `most_steps` steps it has the oldest
        alone: the latest figures and the totals come with the last of the steps."""
        observed = self._run.observed.points()
        if self._run.steps is not None:
            self._run.steps.catch_up(self._patience_s)
        with self._collecting:  # scrapes may come at the same time
            metrics = [*self._metrics(observed, most_steps)]
        scopes = [ScopeMetrics(InstrumentationScope(SCOPE, VERSION), metrics, "")] if metrics else []
        if (user_metrics := self._run.user_metrics()) is not None:
            scopes += guarded(user_metrics.scopes)() or []
        return MetricsData([ResourceMetrics(self._run.resource, scopes, "")]) if scopes else None

    def sent(self, *, rejected: bool = False) -> None:
        """Notes that what `collect` gave has arrived, or was rejected and will never be taken."""
        if self._moments:
            self.unsent.sent(self._moments[-1].time_ns, rejected=rejected)
        if self.is_part:
            return
        before, self._sent_totals, self._sent_ns = self._sent_totals, self._totals, self._collected_ns
        if rejected:  # the count of dropped steps must still arrive
            dropped = {series: before.get(series, 0) for series in self._totals if series[0] is names.TELEMETRY_DROPPED}
            self._sent_totals = self._totals | dropped
        if Kind.HISTOGRAM in self._deltas:
            self._tallies = {}

    def _metrics(self, observed: Mapping[Metric, Sequence[Point]], most_steps: int | None) -> Iterator[MetricData]:
        self._totals = dict(self._sent_totals)
        moments, snapshot, new = self._recorded()
        self._moments = moments[:most_steps]
        self.is_part = len(self._moments) < len(moments)
        for series, tally in new.items():
            self._tallies.setdefault(series, Tally(tally.metric, tally.attributes)).include(tally)
        if not self.is_part:
            for metric, points in {**observed, **snapshot.counters}.items():
                if points:
                    yield self._scalar(metric, points)
        latest = snapshot.board if self._run.is_live and not self.is_part else Board()
        for metric, courses in _courses(self._moments, latest, self._collected_ns).items():
            yield _data(metric, Gauge(courses))
        if not self.is_part:
            yield from self._histograms()

    def _recorded(self) -> tuple[list[Moment], Snapshot, dict[Series, Tally]]:
        """The moments since the last export that arrived, what holds now, and the new values of the histograms.

        Everything is said of the time up to which the steps are known, in a past run of the last step. Prometheus
        refuses an export that begins before the one before it ended, and a step that waits for its translation is of
        before now.
        """
        steps = self._run.steps
        if steps is None:
            self._collected_ns = after(now_ns(), self._collected_ns)
            return [], Snapshot(Board(), {}), self._inbox.take()
        recorder = steps.recorder
        with recorder.lock:
            if self._run.is_live:
                self._collected_ns = steps.known_until_ns(now_ns())
            else:
                self._collected_ns = max(recorder.last_ns, self._collected_ns + 1)
            moments, snapshot, new = self.unsent.take(), recorder.snapshot(), self._inbox.take()
        snapshot.counters[names.TELEMETRY_DROPPED] = dropped_points(
            recorder.without_figures, self.unsent.thinned, self.unsent.rejected
        )
        return moments, snapshot, new

    def _scalar(self, metric: Metric, points: Sequence[Point]) -> MetricData:
        """The data of a counter, or of a figure that is read anew at every collection."""
        if metric.kind is Kind.GAUGE:
            courses = Courses()
            courses.add(self._collected_ns, points)
            return _data(metric, Gauge(courses))
        delta = metric.kind in self._deltas
        start_ns, time_ns = self._start_ns(delta), self._collected_ns
        numbers = [
            NumberDataPoint(point[1], start_ns, time_ns, self._change(metric, point) if delta else point[0])
            for point in points
        ]
        return _data(metric, Sum(numbers, DELTA if delta else CUMULATIVE, is_monotonic=metric.kind is Kind.COUNTER))

    def _change(self, metric: Metric, point: Point) -> float:
        """How much a total has grown since the last export that arrived."""
        total, attributes = point
        series = metric, (*attributes.items(),)
        self._totals[series] = total
        return total - self._sent_totals.get(series, 0)

    def _histograms(self) -> Iterator[MetricData]:
        delta = Kind.HISTOGRAM in self._deltas
        points: dict[Metric, list[Any]] = {}
        for tally in self._tallies.values():
            distribution = tally.counted()
            if not self._exponential and isinstance(distribution, Exponential):
                distribution = distribution.between_powers_of_two(POWERS_OF_TWO)
            point = distribution.point(tally.attributes, self._start_ns(delta), self._collected_ns)
            points.setdefault(tally.metric, []).append(point)
        for metric, found in points.items():
            kind = ExponentialHistogram if metric.exponential and self._exponential else Histogram
            yield _data(metric, kind(found, DELTA if delta else CUMULATIVE))

    def _start_ns(self, delta: bool) -> int:
        return self._sent_ns if delta else self._run.start_ns


def _courses(moments: Iterable[Moment], board: Board, until_ns: int) -> dict[Metric, Courses]:
    """Every figure: one point at the time of each step that had it, and a last point at the time up to which the board
    holds."""
    courses: defaultdict[Metric, Courses] = defaultdict(Courses)
    for time_ns, figures in [*moments, Moment(until_ns, board.figures())]:
        for metric, points in figures.items():
            courses[metric].add(time_ns, points)
    return courses


def _data(metric: Metric, data: Any) -> MetricData:
    return MetricData(metric.name, metric.description, metric.unit, data)
