"""A program's own metrics: recorded with the SDK's instruments, exported with the figures of its run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, ScopeMetrics
from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.recording.labels import LARGEST_NUMBER, clean
from akka_otel_callbacks.common.vocabulary.scope import SCOPE

USER_SCOPE = f"{SCOPE}.user"
NUMBERS = ("value", "sum", "min", "max")
"""The fields of a point with a user's numbers. The SDK makes its counts itself."""


class UserMetrics:
    """One provider for all trainings of a callback. Totals go on from one training to the next."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        provider = MeterProvider([self._reader], Resource.get_empty(), shutdown_on_exit=False)
        self.meter: Meter = provider.get_meter(USER_SCOPE)

    def scopes(self) -> list[ScopeMetrics]:
        """Everything that was recorded so far, as totals. Observable instruments are asked for their values."""
        data = self._reader.get_metrics_data()
        found = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [replace(scope, metrics=[_exportable(metric) for metric in scope.metrics]) for scope in found]


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
