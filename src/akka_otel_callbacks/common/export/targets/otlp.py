"""A collector, or another server that speaks OTLP."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.export.otlp.settings import OtlpSettings, OtlpVariables
from akka_otel_callbacks.common.export.redaction import redact_url
from akka_otel_callbacks.common.export.signals import LOGS, METRICS, TRACES
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.target import Answer, Asked, MetricOutput, Schedule, Target

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.logs.push import LogExporter


@dataclass(frozen=True, slots=True)
class OtlpTarget(Target):
    """Takes OTLP over HTTP or gRPC."""

    kind: ClassVar = "otlp"
    signals: ClassVar = (METRICS, TRACES, LOGS)
    extras: ClassVar = {"grpc": "grpc"}

    endpoint: str = field(repr=False)
    """The URL as it was written, over HTTP with the path of the signal. It may hold secrets."""
    settings: OtlpSettings

    @classmethod
    def asked(cls, asked: Asked) -> Target:
        """The collector. If endpoints are named and none can be used, it is the embedded file: nobody meant to send to
        the SDK's default."""
        variables = OtlpVariables(asked.environ, asked.signal, asked.warnings)
        if variables.wrong_endpoint and not variables.endpoint_variable:
            return FileTarget(f"{variables.wrong_endpoint} cannot be used", asked.file)
        return cls(asked.reason, variables.url, variables.settings())

    @property
    def where(self) -> str:
        return f"{self.settings.protocol} {redact_url(self.endpoint)}"

    def open_metrics(self, schedule: Schedule) -> MetricOutput:
        from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics

        return MetricOutput(self, schedule, OtlpMetrics(self))

    def open_spans(self) -> SpanExporter:
        from akka_otel_callbacks.common.export.otlp.exporters import OtlpSpans

        return OtlpSpans(self)

    def open_logs(self) -> LogExporter:
        from akka_otel_callbacks.common.export.otlp.exporters import OtlpLogs

        return OtlpLogs(self)

    def probe(self, timeout_s: float) -> Answer:
        """Sends an empty export as a training would, so that protocol, headers and certificates are tried with it."""
        from akka_otel_callbacks.common.export.otlp.delivery import REQUESTS, Delivery

        delivery = Delivery(self)
        reply = delivery.once(REQUESTS[self.settings.signal](), timeout_s)
        delivery.close()
        if not reply.delivered:
            return Answer(False, reply.reason)
        return Answer(True, ": ".join(part for part in ("answers, and accepted an empty export", reply.reason) if part))
