"""The rollouts that a call belongs to: those of the ledger that is open at the call."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from akka_otel_callbacks.common.graders.call import Call

_current: ContextVar[Ledger | None] = ContextVar("akka_otel_ledger", default=None)
current = _current.get
"""Returns the ledger that is open in this context. None without one."""
_open: list[Ledger] = []
"""All open ledgers of this process, in the order in which they were opened."""


class Ledger:
    """The calls that were made while it was open, in the context that opened it and in what that started."""

    __slots__ = ("_before", "calls")

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._before: Ledger | None = None

    def __enter__(self) -> Ledger:
        self._before = current()
        _current.set(self)
        _open.append(self)
        return self

    def __exit__(self, *raised: Any) -> None:
        _current.set(self._before)
        self._before = None  # a ledger that lives on keeps no other one
        _open.remove(self)


def note(call: Call) -> None:
    """Puts a call where it belongs. A user's own thread has no context: its calls belong to the ledger that was opened
    last. With none open, as in a trial of a judge before the training, a call belongs to no rollout."""
    ledger = current() or _latest()
    if ledger is not None:
        ledger.calls.append(call)


def _latest() -> Ledger | None:
    try:
        return _open[-1]
    except IndexError:
        return None
