"""The process's own stdout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.export.console import ConsoleLogs, Stdout
from akka_otel_callbacks.common.export.signals import LOGS, METRICS, TRACES
from akka_otel_callbacks.common.export.targets.target import Asked, MetricOutput, Schedule, Target

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.logs.push import LogExporter


@dataclass(frozen=True, slots=True)
class ConsoleTarget(Target):
    """Takes what the SDK's console exporters write."""

    kind: ClassVar = "console"
    signals: ClassVar = (METRICS, TRACES, LOGS)

    @classmethod
    def asked(cls, asked: Asked) -> ConsoleTarget:
        return cls(asked.reason)

    def open_metrics(self, schedule: Schedule) -> MetricOutput:
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return MetricOutput(self, schedule, ConsoleMetricExporter(out=Stdout()))  # type: ignore[arg-type]

    def open_spans(self) -> SpanExporter:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=Stdout())  # type: ignore[arg-type]

    def open_logs(self) -> LogExporter:
        return ConsoleLogs()
