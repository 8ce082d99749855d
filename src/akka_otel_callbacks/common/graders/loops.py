"""One value for each event loop, and an event loop of the package for callers without one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_starting = threading.Lock()
_ours: tuple[int, asyncio.AbstractEventLoop] | None = None
"""Our loop, and the process that runs it: a forked child has the loop and not its thread."""


class PerLoop(Generic[T]):
    """One value for each event loop, made in that loop when it is first asked for. It goes with the loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        with self._lock:
            found = self._made.get(loop)
            if found is None:
                found = self._made[loop] = self._make()
        return found


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in our loop, in the caller's context, and waits for its result. An interrupt ends the
    coroutine."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result()
    finally:
        future.cancel()


def _loop() -> asyncio.AbstractEventLoop:
    global _ours
    with _starting:
        if _ours is None or _ours[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="akka-otel-judge", daemon=True).start()
            _ours = os.getpid(), loop
        return _ours[1]
