"""Where the metrics of a telemetry leave its process: our own exporters, a given meter provider, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from akka_otel_callbacks.common.recording.observed import ReadPoints
from akka_otel_callbacks.common.threads import Closer
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes


class Outlet(Protocol):
    """A way by which metrics leave the process."""

    takes: bool
    """Whether anything leaves there. Where it is False, captures are not worth taking."""
    threads: Sequence[Closer]
    """The threads that export. Each sends what is left when it is stopped."""

    def observe(self, metric: Metric, points: ReadPoints) -> None:
        """Reads a source at every collection from now on."""

    def measure(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Adds one value to a histogram that belongs to no step."""

    def silence(self) -> None:
        """Ends every series of a source."""

    def hurry(self) -> None:
        """Has no exporter wait before it tries again."""

    def flush(self, deadline: float) -> bool:
        """Exports now, and waits up to a time of the monotonic clock. False where it took longer."""

    def missing(self, timeout_s: float) -> list[str]:
        """A line for each place that did not get everything by the end. `timeout_s` is how long the end was allowed to
        take."""


class Nowhere:
    """Nothing asks for metrics."""

    takes = False
    threads: Sequence[Closer] = ()

    def observe(self, metric: Metric, points: ReadPoints) -> None: ...

    def measure(self, metric: Metric, value: float, attributes: Attributes) -> None: ...

    def silence(self) -> None: ...

    def hurry(self) -> None: ...

    def flush(self, deadline: float) -> bool:
        return True

    def missing(self, timeout_s: float) -> list[str]:
        return []
