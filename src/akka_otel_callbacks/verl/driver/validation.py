"""The spans of a reinforcement trainer's validations."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.patching.calls import Call, around
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.vocabulary import names

TRAINERS = ("RayPPOTrainer", "PPOTrainer")
"""Of v0, and of v1. The disaggregated ones inherit from them."""


def install(module: ModuleType) -> None:
    for name in TRAINERS:
        if name in vars(module):
            around(getattr(module, name), "_validate", _time)


def _time(validate: Call) -> Iterator[None]:
    start_ns = now_ns()
    yield
    telemetry = current.current()
    if telemetry is not None and telemetry.reports_steps:
        telemetry.span(names.SPAN_EVAL, start_ns, now_ns(), error=validate.error)
