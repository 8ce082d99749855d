"""The signals of a telemetry, as the names of OpenTelemetry's variables have them."""

from __future__ import annotations

METRICS, TRACES, LOGS = SIGNALS = "METRICS", "TRACES", "LOGS"
