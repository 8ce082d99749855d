"""Who records the figures, in OpenTelemetry's terms: the instrumentation scope's name and version."""

from __future__ import annotations

from akka_otel_callbacks import __version__

SCOPE = "akka_otel_callbacks"
VERSION = __version__
