"""The telemetry that is open in this process, for code that is not handed it."""

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
    """Calls `hear` with every open telemetry now, and with every further one when it opens."""
    _listeners.append(hear)
    for telemetry in all_open():
        hear(telemetry)


def all_open() -> list[Telemetry]:
    """Every open telemetry, in the order of their opening. After a fork, the child has none of its parent's."""
    return [telemetry for telemetry in _open if not telemetry.closed]


def current() -> Telemetry | None:
    """The newest open telemetry of a training. If no training has one, the newest of a worker or a single
    evaluation."""
    return max(reversed(all_open()), key=lambda telemetry: telemetry.reports_steps, default=None)


def was_open() -> bool:
    """Whether this process ever had one."""
    return _was_open
