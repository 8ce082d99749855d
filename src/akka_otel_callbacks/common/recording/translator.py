"""The thread that turns captures into figures, as soon as they come and whatever exports them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from akka_otel_callbacks.common.clock import unix_ns
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.threads import ExportLoop
from akka_otel_callbacks.common.vocabulary import names

MOST_CAPTURES, MOST_VALUES = 1024, 1_000_000
"""What may wait, in captures and in values that they hold. In normal running one step waits. Past either, steps are
dropped and counted, because a training must neither wait nor run out of memory."""
NAP_S, QUIET_NAPS = 0.1, 2
"""While steps come quickly, the thread looks for new ones after each nap: to be woken by every step costs the training
more than all else. After some naps without a step it sleeps until the next one wakes it."""
TURN_S, PAUSE_S = 0.002, 0.0001
"""While many captures wait, the thread gives way after each turn: a training thread that wants the interpreter would
otherwise wait for Python's switch interval, 5 ms, again and again."""


class Capture(Protocol):
    """What the training thread leaves behind. `deliver` runs on the translator's thread, where translation, reads from
    the device and arithmetic belong. A capture that holds many values says how many with an attribute `values_held`."""

    def deliver(self, recorder: Recorder) -> None: ...


@dataclass(slots=True)
class Waiting:
    monotonic_ns: int
    """When it was captured. The training thread leaves it to others to make a date of it, which takes 2 µs."""
    capture: Capture
    values: int


class Translator(threading.Thread):
    """The queue of captures and the thread that empties it.

    The thread is started early, because Python 3.12 and later refuse new ones while the interpreter exits. It is a
    daemon, and a forked child has none.
    """

    def __init__(self, recorder: Recorder, loops: Sequence[ExportLoop]) -> None:
        """`loops` are told of every step whose figures are there."""
        super().__init__(name="akka-otel-translator", daemon=True)
        self._recorder = recorder
        self._loops = loops
        self._queue: deque[Waiting] = deque()
        self._values_added = self._values_taken = 0  # each of them is written by one thread only
        self._bell = threading.Lock()
        self._bell.acquire()
        self._amendments_dropped = 0
        self._asleep = self._stopping = False
        self._warned = False

    def add(self, capture: Capture, *, step: bool) -> None:
        """Queues a capture. It is all that the training thread does. What one that waits alone holds is not counted:
        there is room for it in any case, and in normal running no other one waits."""
        values = 0
        if self._queue:
            values = getattr(capture, "values_held", 0)
            if self._is_full(values, step=step):
                if step:
                    self._recorder.overflow += 1
                else:
                    self._amendments_dropped += 1
                return
        self._append(capture, values)

    def waiting(self) -> int:
        """How many captures have not been translated yet."""
        return len(self._queue)

    def known_until_ns(self, now_ns: int) -> int:
        """Up to when all that was captured is translated."""
        try:
            return min(unix_ns(self._queue[0].monotonic_ns) - 1, now_ns)
        except IndexError:
            return now_ns

    def catch_up(self, timeout_s: float) -> bool:
        """Waits until everything that is captured now is translated. False where that takes longer."""
        if not self._queue:
            return True
        mark = _Mark()
        self._append(mark, 0)
        self._ring()
        return mark.passed.wait(timeout_s)

    def stop(self) -> None:
        """Has the thread end after what waits; returns at once."""
        self._stopping = True
        self._ring()

    def say_what_is_missing(self) -> None:
        """At the end."""
        left = sum(not isinstance(waiting.capture, _Mark) for waiting in (*self._queue,))
        for count, what in (
            (self._recorder.overflow, "steps came faster than their figures can be computed, and have none"),
            (self._amendments_dropped, "evaluations and the like came faster than that"),
            (left, "captures were not yet computed at the end, and are lost"),
        ):
            if count:
                logger.warning("%s: %d", what, count)

    def run(self) -> None:
        while not self._stopping:
            self._asleep = True
            if not self._queue:
                self._bell.acquire()
            self._asleep = False
            quiet = 0
            while quiet < QUIET_NAPS and not self._stopping:
                quiet = 0 if self._empty() else quiet + 1
                self._bell.acquire(timeout=NAP_S)
        self._empty()

    def _empty(self) -> bool:
        """Translates what waits. False where nothing did."""
        if not self._queue:
            return False
        began = time.monotonic()
        while self._queue:
            self._translate(self._queue[0])
            self._values_taken += self._queue.popleft().values  # it counts as waiting until it is translated
            if time.monotonic() - began > TURN_S:
                time.sleep(PAUSE_S)
                began = time.monotonic()
        if self._recorder.overflow and not self._warned:
            self._warned = True
            logger.warning(
                "steps come faster than their figures can be computed. Some have no figures and are counted in %s",
                names.TELEMETRY_DROPPED.name,
            )
        return True

    @guarded
    def _translate(self, waiting: Waiting) -> None:
        before = self._recorder.steps
        self._recorder.reported_ns = unix_ns(waiting.monotonic_ns)
        waiting.capture.deliver(self._recorder)
        if self._recorder.steps != before:
            for loop in self._loops:
                loop.step_reported()

    def _append(self, capture: Capture, values: int) -> None:
        self._values_added += values
        self._queue.append(Waiting(time.monotonic_ns(), capture, values))
        if self._asleep:
            self._ring()

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it was rung already
            self._bell.release()

    def _is_full(self, values: int, *, step: bool) -> bool:
        """Evaluations and the like, which are few and small, have as much room again."""
        if not step:
            return len(self._queue) >= 2 * MOST_CAPTURES
        held = self._values_added - self._values_taken
        return len(self._queue) >= MOST_CAPTURES or held + values > MOST_VALUES


class _Mark:
    def __init__(self) -> None:
        self.passed = threading.Event()

    def deliver(self, recorder: Recorder) -> None:
        self.passed.set()
