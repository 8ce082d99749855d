"""Telemetry for TRL: add `AkkaTelemetryCallback()` to a trainer's callbacks."""

from akka_otel_callbacks.trl.callback import AkkaTelemetryCallback
from akka_otel_callbacks.trl.handed import run_resource

__all__ = ["AkkaTelemetryCallback", "run_resource"]
