"""Hears verl's timers. All of them are one function, a generator around the code that is timed."""

from __future__ import annotations

from types import ModuleType

from akka_otel_callbacks.common.patching.calls import Call, after
from akka_otel_callbacks.verl.state import STATE


def install(performance: ModuleType) -> None:
    after(performance, "_timer", _hear)


def _hear(timer: Call) -> None:
    if STATE.timings.listening:
        timer.result = STATE.timings.timed(str(timer.get(0, "name")), timer.result)
