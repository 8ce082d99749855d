"""The telemetry of a run that is open in this process, for code that nobody hands it to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from akka_otel_callbacks.common.telemetry import Telemetry

_open: tuple[Telemetry, ...] = ()
_listeners: list[Callable[[Telemetry], object]] = []
_was_open = False
_changing = threading.Lock()


def opened(telemetry: Telemetry) -> None:
    global _open, _was_open
    with _changing:
        _open, _was_open = (*_open, telemetry), True
    for hear in tuple(_listeners):
        hear(telemetry)


def ended(telemetry: Telemetry) -> None:
    global _open
    with _changing:
        _open = tuple(other for other in _open if other is not telemetry)


def for_each(hear: Callable[[Telemetry], object]) -> None:
    """Calls it with each that is open, and with each that is opened from now on."""
    _listeners.append(hear)
    for telemetry in all_open():
        hear(telemetry)


def all_open() -> list[Telemetry]:
    """In the order in which they were opened. Those of a fork's parent are closed in the child, without an end."""
    return [telemetry for telemetry in _open if not telemetry.closed]


def current() -> Telemetry | None:
    """The newest that is open: of a training, where there is one, before that of a worker or of a single evaluation."""
    return max(reversed(all_open()), key=lambda telemetry: telemetry.reports_steps, default=None)


def was_open() -> bool:
    """Whether this process ever had one."""
    return _was_open
