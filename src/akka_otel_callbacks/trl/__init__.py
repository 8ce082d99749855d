"""Telemetry for TRL: add `AkkaTelemetryCallback()` to a trainer's callbacks."""

from akka_otel_callbacks.trl.callback import AkkaTelemetryCallback

__all__ = ["AkkaTelemetryCallback"]
