"""The threads that export and close, so that the training thread never waits for a disk or a network."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from akka_otel_callbacks.common.guard import report

ExportOnce = Callable[[], bool]
"""Exports what there is, and says whether it arrived."""

OURS = "akka-otel-"
"""How the name of each of the package's threads begins."""


def is_ours() -> bool:
    """Whether the current thread is one of the package's. Python collects garbage on any thread, so a user's object may
    be destroyed on one of ours, while it holds a lock. There nobody may wait for that thread."""
    return threading.current_thread().name.startswith(OURS)


class Closer(threading.Thread):
    """A thread that waits until it is told to close, and then closes something, however long that takes.

    The thread is started early and parked, because Python 3.12 and later refuse new threads while the interpreter
    exits. It is a daemon, so the process can end without it. A forked child has no such thread, so it cannot export the
    sums of its parent a second time.
    """

    def __init__(self, name: str, close: Callable[[], object]) -> None:
        super().__init__(name=f"{OURS}{name}", daemon=True)
        self.what = name
        self._close = close
        self._stop_event = threading.Event()

    def stop(self) -> None:
        """Asks the thread to close; returns at once."""
        self._stop_event.set()

    def run(self) -> None:
        self._until_stopped()
        self._attempt(self._close)

    def _until_stopped(self) -> None:
        self._stop_event.wait()

    def _attempt(self, action: Callable[[], object]) -> object:
        try:
            return action()
        except Exception as error:  # noqa: BLE001 - an exporter's failure must not end the thread
            report(self.name, error)
            return None


def flush_of(provider: object) -> Callable[[], object]:
    """The flush of a provider that the user handed in and also ends. For a provider without a flush, such as the API's
    no-op providers, it does nothing."""
    return getattr(provider, "force_flush", lambda: None)


class ExportLoop(Closer):
    """Exports at every interval and once more at the end. The first export comes after `share` of the interval, so that
    thousands of processes that start together do not all export at the same moment. With `pause_s`, it also exports as
    soon as a step is reported and the last export began at least that many seconds ago."""

    def __init__(
        self,
        export: ExportOnce,
        close: Callable[[], object],
        interval_s: float,
        pause_s: float | None,
        share: float = 1.0,
    ) -> None:
        super().__init__("exporter", close)
        self._export_once = export
        self._interval_s = min(interval_s, threading.TIMEOUT_MAX)  # past it a wait raises
        self._pause_s, self._share = pause_s, share
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._exports = threading.Condition()
        self._begun = self._done = 0
        self._began_s = time.monotonic()
        self.arrived = True
        """Whether the last export did."""

    def step_reported(self) -> None:
        if self._pause_s is not None and not self._wake.is_set():
            self._wake.set()

    def flush(self, timeout_s: float) -> bool:
        """Asks for an export that begins after this call, and waits for its end. False if it did not end in time."""
        with self._exports:
            wanted = self._begun + 1
            self._hurry.set()
            self._wake.set()
            return self._exports.wait_for(lambda: self._done >= wanted, timeout_s)

    def stop(self) -> None:
        super().stop()
        self._hurry.set()
        self._wake.set()

    def _until_stopped(self) -> None:
        last, wait_s = False, self._interval_s * self._share
        while not last:
            if not self._stop_event.is_set():
                self._wake.wait(wait_s)
            wait_s = self._interval_s
            last = self._stop_event.is_set()  # read before the export, which then has all that came before the stop
            self._wake.clear()
            self._hurry.clear()
            self._export()
            if self._pause_s is not None and not self._stop_event.is_set():  # a stop's hurry may be cleared by now
                self._hurry.wait(self._rest_of_the_pause_s())

    def _rest_of_the_pause_s(self) -> float:
        """The pause counts from the begin of an export that arrived, so that steps as long as the pause are each
        exported at once. After an export that failed it counts from its end, so that a collector in trouble gets the
        whole pause."""
        assert self._pause_s is not None
        since_s = time.monotonic() - self._began_s if self.arrived else 0.0
        return max(0.0, self._pause_s - since_s)

    def _export(self) -> None:
        with self._exports:
            self._begun += 1
        self._began_s = time.monotonic()
        self.arrived = bool(self._attempt(self._export_once))
        with self._exports:
            self._done += 1
            self._exports.notify_all()


def exporting() -> ExportLoop | None:
    """The loop that runs this export. None if something else asked for the figures, such as a scrape."""
    thread = threading.current_thread()
    return thread if isinstance(thread, ExportLoop) else None
