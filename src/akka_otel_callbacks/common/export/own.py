"""The package's own exporters, as the environment asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.export.address_files import labels_of
from akka_otel_callbacks.common.export.producer import Run
from akka_otel_callbacks.common.export.push import Push
from akka_otel_callbacks.common.export.scrape import serve
from akka_otel_callbacks.common.export.targets.target import MetricOutput
from akka_otel_callbacks.common.recording.observed import Observed, ReadPoints
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.threads import Closer, ExportLoop
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Attributes

if TYPE_CHECKING:
    from akka_otel_callbacks.common.export.user_metrics import UserMetrics


class OwnExporters:
    """An `Outlet` for the exporters that the environment asks for. They get finished data: every step, and whole
    histograms. An OpenTelemetry instrument would take one value at a time and show the latest.

    Args:
        outputs: the opened targets.
        resource: who the process is.
        steps: None for a process that reports none.
        share: where in the interval the first export falls, from 0 to 1.
        user_metrics: returns the program's own metrics, None while it has none.
    """

    takes = True

    def __init__(
        self,
        outputs: Sequence[MetricOutput],
        resource: Resource,
        steps: Steps | None,
        share: float,
        user_metrics: Callable[[], UserMetrics | None] = lambda: None,
    ) -> None:
        self._observed = Observed()
        self._ends: list[Callable[[], None]] = []
        self._run = Run(resource, now_ns(), self._observed, steps, user_metrics=user_metrics)
        self._pushes: list[tuple[Push, ExportLoop]] = []
        for output in outputs:
            if output.scraped is not None:
                serve(output.scraped, self._run)
            if output.address_file is not None:
                output.address_file.publish(labels_of(resource.attributes))
            if output.exporter is not None:
                push, when = Push(output.exporter, self._run, output.target), output.schedule
                loop = ExportLoop(push.export, push.close, when.interval_s, when.pause_s, share)
                self._pushes.append((push, loop))
        self._loops = [loop for _, loop in self._pushes]
        self.threads: Sequence[Closer] = self._loops
        if steps is not None:
            steps.wake(self._loops)

    def observe(self, metric: Metric, points: ReadPoints) -> None:
        self._ends.append(self._observed.add(metric, points))

    def measure(self, metric: Metric, value: float, attributes: Attributes) -> None:
        self._run.measured.record(metric, value, attributes)
        for loop in self._loops:
            loop.step_reported()

    def silence(self) -> None:
        while self._ends:
            self._ends.pop()()

    def hurry(self) -> None:
        for push, _ in self._pushes:
            push.hurry()

    def flush(self, deadline: float) -> bool:
        flushed = [loop.flush(max(0.0, deadline - time.monotonic())) for loop in self._loops]
        return all(flushed)

    def missing(self, timeout_s: float) -> list[str]:
        told = [push.missing(timeout_s, ended=not loop.is_alive()) for push, loop in self._pushes]
        return [line for line in told if line is not None]
