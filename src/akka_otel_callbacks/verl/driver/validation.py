"""Validations by a method of the trainer: a span of each, and that the trainer makes no step meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.patching.calls import Call, around
from akka_otel_callbacks.common.run import current

if TYPE_CHECKING:
    from akka_otel_callbacks.common.telemetry import Telemetry

TRAINERS = ("RayPPOTrainer", "PPOTrainer")
"""The trainers with a method that validates: v0 and v1. The disaggregated trainers inherit from them."""
WAIT = "_fit_validate"
"""The method in which a fully_async trainer waits for a validation. It is called at each step, and mostly returns at
once."""


def install(module: ModuleType) -> None:
    for name in TRAINERS:
        if name in vars(module):
            around(getattr(module, name), "_validate", _time)


def listen(trainer: object) -> None:
    """Hears of the validations of a fully_async trainer, which another process makes and logs how long they took. Ray
    makes a class of its own of that trainer, so it is hooked when it is there. Others are left alone."""
    kind = type(trainer)
    if inspect.iscoroutinefunction(getattr(kind, WAIT, None)):
        around(kind, WAIT, _time_wait)


def of_training() -> Telemetry | None:
    """The telemetry of the training in this process. None where none is open."""
    telemetry = current.current()
    return telemetry if telemetry is not None and telemetry.reports_steps else None


def _time(validate: Call) -> Iterator[None]:
    yield from _watched(validate, is_logged=False)


def _time_wait(validate: Call) -> Iterator[None]:
    yield from _watched(validate, is_logged=True)


def _watched(validate: Call, *, is_logged: bool) -> Iterator[None]:
    """A validation in the training's pauses and spans.

    Args:
        is_logged: whether verl logs how long it took. One that went well then has its span from there.
    """
    telemetry = of_training()
    if telemetry is None:
        return
    # whoever opened a telemetry has loaded the vocabulary, which other processes that import a trainer do without
    from akka_otel_callbacks.common.recording.pauses import EVALUATION
    from akka_otel_callbacks.common.vocabulary.names import SPAN_EVAL

    start_ns = now_ns()
    telemetry.pauses.begin(EVALUATION)
    yield
    telemetry.pauses.end(EVALUATION)
    if validate.error is None and is_logged:
        return
    telemetry.span(SPAN_EVAL, start_ns, now_ns(), error=validate.error)
    if is_logged:
        telemetry.flush(0)  # verl ends this process with SIGKILL
