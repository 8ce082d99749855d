"""A program's own metrics: recorded with the SDK's instruments, exported with the figures of its run."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - the SDK uses it in a fork's child, where a later import leaves it locked
import threading
from dataclasses import replace
from typing import Any
from weakref import WeakMethod

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, ScopeMetrics
from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.forks import call_around_forks
from akka_otel_callbacks.common.recording.labels import LARGEST_NUMBER, clean
from akka_otel_callbacks.common.vocabulary.scope import SCOPE

USER_SCOPE = f"{SCOPE}.user"
NUMBERS = ("value", "sum", "min", "max")
"""The fields of a point with a user's numbers. The SDK makes its counts itself."""


FORK_PATIENCE_S = 1.0
"""How long a fork waits for the end of a collection. One that takes longer hangs in a callback of the user's."""


class UserMetrics:
    """One provider for all trainings of a callback. Totals go on from one training to the next. In a forked child they
    begin anew, with the same instruments: the child would publish its parent's totals a second time."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], Resource.get_empty(), shutdown_on_exit=False)
        self.meter: Meter = self._provider.get_meter(USER_SCOPE)
        self._collecting = threading.RLock()
        self._is_waiting = self._is_broken = False
        call_around_forks(WeakMethod(self._wait), WeakMethod(self._go_on), WeakMethod(self._begin_anew))

    def scopes(self) -> list[ScopeMetrics]:
        """Everything that was recorded so far, as totals. Observable instruments are asked for their values."""
        if self._is_broken:
            return []
        with self._collecting:
            data = self._reader.get_metrics_data()
        found = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [replace(scope, metrics=[_exportable(metric) for metric in scope.metrics]) for scope in found]

    def _wait(self) -> None:
        """Forked within a collection, a child would find the SDK's locks held for ever."""
        self._is_waiting = self._collecting.acquire(timeout=FORK_PATIENCE_S)

    def _go_on(self) -> None:
        if self._is_waiting:
            self._collecting.release()

    def _begin_anew(self) -> None:
        """Old SDKs have no public way to forget what their instruments recorded. New ones can change a provider's
        readers (`add_metric_reader`), and a new reader begins with nothing. What cannot be forgotten is not published.
        """
        self._is_broken = True
        if self._is_waiting:
            for storage in self._provider._measurement_consumer._reader_storages.values():
                storage._instrument_view_instrument_matches.clear()
            self._collecting.release()
            self._is_broken = False


def _exportable(metric: Metric) -> Metric:
    """The metric without examples of single values, and with attributes and numbers that every exporter takes. A point
    that cannot be encoded would fail the whole export, and with it the run's own figures."""
    points: list[Any] = []
    for point in metric.data.data_points:
        attributes: Any = point.attributes or {}
        said = {name: getattr(point, name, None) for name in NUMBERS}
        numbers: dict[str, Any] = {name: _plain(value) for name, value in said.items() if value is not None}
        points.append(replace(point, attributes=clean(attributes), exemplars=[], **numbers))
    data: Any = metric.data
    return replace(metric, data=replace(data, data_points=points))


def _plain(value: Any) -> float:
    """A user's value as a plain number. A user may record a tensor, a number of numpy's, or one beyond 64 bits."""
    return value if type(value) is int and abs(value) < LARGEST_NUMBER else float(value)
