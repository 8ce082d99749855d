"""Switches in the environment that turn parts of the telemetry off, whatever the code asks for."""

from __future__ import annotations

from collections.abc import Mapping

EVERYTHING = "AKKA_OTEL_DISABLE"
GPUS = "AKKA_OTEL_GPU_DISABLE"
"""NVML is not touched: no health, no XIDs, and no UUIDs in the placement."""

NO = frozenset(("", "0", "false", "no", "off"))


def is_off(switch: str, environ: Mapping[str, str]) -> bool:
    """Whether a switch is set; a value that says no is as good as none."""
    return environ.get(switch, "").strip().lower() not in NO
