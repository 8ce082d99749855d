"""A meter provider that a program hands in."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.metrics import MeterProvider

from akka_otel_callbacks.common.export.instruments import StepInstruments, measure, observe
from akka_otel_callbacks.common.recording.observed import ReadPoints
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.threads import Closer, flush_of
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes
from akka_otel_callbacks.common.vocabulary.scope import SCOPE, VERSION


class GivenProvider:
    """An `Outlet` for a program's own provider. Its readers are not ours and can only read instruments. At the end the
    provider is flushed, not shut down.

    Args:
        provider: the program's.
        steps: None for a process that reports none.
    """

    takes = True

    def __init__(self, provider: MeterProvider, steps: Steps | None) -> None:
        self._meter = provider.get_meter(SCOPE, VERSION)
        self._ends: list[Callable[[], None]] = StepInstruments(self._meter, steps).ends if steps is not None else []
        self.threads: Sequence[Closer] = [Closer("metrics", flush_of(provider))]

    def observe(self, metric: Metric, points: ReadPoints) -> None:
        self._ends.append(observe(self._meter, metric, points))

    def measure(self, metric: Metric, value: float, attributes: Attributes) -> None:
        measure(self._meter, metric, value, attributes)

    def silence(self) -> None:
        while self._ends:
            self._ends.pop()()

    def hurry(self) -> None:
        """Does nothing, because the exporters are not ours."""

    def flush(self, deadline: float) -> bool:
        """Does nothing, because the readers export when they like."""
        return True

    def missing(self, timeout_s: float) -> list[str]:
        """Empty: nobody knows what the program's readers have exported. A flush that takes too long shows by its
        thread, which is still there."""
        return []
