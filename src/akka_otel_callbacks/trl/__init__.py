"""Telemetry for TRL: add `AkkaTelemetryCallback()` to a trainer's callbacks.

The callback needs transformers, and so it is loaded when it is asked for. The tables of this package need no engine:
`akka-otel replay` reads a log with them on a machine that has none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akka_otel_callbacks.trl.callback import AkkaTelemetryCallback
    from akka_otel_callbacks.trl.handed import run_resource

__all__ = ["AkkaTelemetryCallback", "run_resource"]

PLACES = {"AkkaTelemetryCallback": "callback", "run_resource": "handed"}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
    return found
