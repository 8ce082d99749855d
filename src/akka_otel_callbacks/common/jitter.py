"""Keeps the jitter of the exporters' retries away from the random numbers that a training seeds."""

from __future__ import annotations

import random
import sys

OTLP = "opentelemetry.exporter.otlp."


def take_own_jitter() -> None:
    """Gives the OTLP exporters that are loaded a generator of their own.

    They draw from Python's global one, over HTTP at every export, retry or not: a seeded training would see other
    numbers with telemetry than without, and other ones each time.
    """
    for name, module in [*sys.modules.items()]:
        if name.startswith(OTLP) and getattr(module, "random", None) is random:
            module.random = random.Random()  # type: ignore[attr-defined]
