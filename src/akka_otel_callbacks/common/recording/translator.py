"""The thread that turns captures into figures, as soon as they come and whatever exports them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Protocol

from akka_otel_callbacks.common.clock import MILLISECOND_NS, unix_ns
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.threads import ExportLoop
from akka_otel_callbacks.common.vocabulary import names

MOST_CAPTURES, MOST_VALUES = 1024, 1_000_000
"""What may wait, in captures and in values that they hold. In normal running one step waits. Past either, steps are
dropped and counted, because a training must neither wait nor run out of memory. Of the values the first step that has
to wait is counted, and the steps behind it are taken to be as large: to count each takes longer than to queue it."""
NAP_S, QUIET_NAPS = 0.1, 2
"""While steps come quickly, the thread looks for new ones after each nap: to be woken by every step costs the training
more than all else. After some naps without a step it sleeps until the next one wakes it."""
Reason = names.TelemetryReason
TURN_S, PAUSE_S = 0.002, 0.0001
"""While many captures wait, the thread gives way after each turn: a training thread that wants the interpreter would
otherwise wait for Python's switch interval, 5 ms, again and again."""


class Capture(Protocol):
    """What the training thread leaves behind. `deliver` runs on the translator's thread, where translation, reads from
    the device and arithmetic belong. A capture that holds many values says how many with an attribute `values_held`."""

    def deliver(self, recorder: Recorder) -> None: ...


class StepFailed:
    """Stands for a step whose capture failed on the training thread. The step has no figures, and counts."""

    def deliver(self, recorder: Recorder) -> None:
        recorder.without_figures[Reason.FAILED] += 1


Waiting = tuple[int, Capture, bool]
"""A capture behind the monotonic nanoseconds of its making, and whether it completes a step. The training thread leaves
it to others to make a date of the nanoseconds, which takes 2 µs."""


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
        self._room = 0
        """How many steps of the size of those that wait may wait, 0 where that is not known."""
        self._bell = threading.Lock()
        self._bell.acquire()
        self._amendments_dropped = 0
        self._asleep = self._stopping = False
        self._warned = False

    def add(self, capture: Capture, *, step: bool) -> None:
        """Queues a capture. It is all that the training thread does. For one that waits alone there is room in any
        case."""
        waiting = len(self._queue)
        if not waiting:
            self._room = 0
        elif waiting >= self._room and self._is_full(waiting, capture, step=step):
            if step:
                self._recorder.without_figures[Reason.OVERFLOW] += 1
            else:
                self._amendments_dropped += 1
            return
        self._queue.append((monotonic_ns(), capture, step))
        if self._asleep:
            self._ring()

    def waiting(self) -> int:
        """How many captures have not been translated yet."""
        return len(self._queue)

    def known_until_ns(self, now_ns: int) -> int:
        """Up to when all that was captured is translated: the millisecond before what waits."""
        try:
            return min(unix_ns(self._queue[0][0]) - MILLISECOND_NS, now_ns)
        except IndexError:
            return now_ns

    def catch_up(self, timeout_s: float) -> bool:
        """Waits until everything that is captured now is translated. False where that takes longer."""
        if not self._queue:
            return True
        mark = _Mark()
        self._queue.append((monotonic_ns(), mark, False))
        self._ring()
        return mark.passed.wait(timeout_s)

    def stop(self) -> None:
        """Has the thread end after what waits; returns at once."""
        self._stopping = True
        self._ring()

    def say_what_is_missing(self) -> None:
        """Logs at the end which captures and figures were lost."""
        left = sum(not isinstance(capture, _Mark) for _, capture, _ in (*self._queue,))
        without_figures = self._recorder.without_figures
        for count, what in (
            (without_figures[Reason.OVERFLOW], "steps came faster than their figures can be computed, and have none"),
            (without_figures[Reason.FAILED], "steps have no figures, because the telemetry failed in them"),
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
            self._queue.popleft()  # it counts as waiting until it is translated
            if time.monotonic() - began > TURN_S:
                time.sleep(PAUSE_S)
                began = time.monotonic()
        if self._recorder.without_figures[Reason.OVERFLOW] and not self._warned:
            self._warned = True
            logger.warning(
                "steps come faster than their figures can be computed. Some have no figures and are counted in %s",
                names.TELEMETRY_DROPPED.name,
            )
        return True

    @guarded
    def _translate(self, waiting: Waiting) -> None:
        made_ns, capture, completes = waiting
        before = self._recorder.steps
        self._recorder.reported_ns = unix_ns(made_ns)
        try:
            capture.deliver(self._recorder)
        except Exception:
            if completes and self._recorder.steps == before:
                StepFailed().deliver(self._recorder)
            raise
        if self._recorder.steps != before:
            for loop in self._loops:
                loop.step_reported()

    def _ring(self) -> None:
        with suppress(RuntimeError):  # it was rung already
            self._bell.release()

    def _is_full(self, waiting: int, capture: Capture, *, step: bool) -> bool:
        """Evaluations and the like, which are few and small, have as much room again."""
        if not step:
            return waiting >= 2 * MOST_CAPTURES
        if not self._room:
            self._room = min(MOST_CAPTURES, 1 + MOST_VALUES // max(1, getattr(capture, "values_held", 0)))
        if waiting < self._room:
            return False
        self._room = 0  # counted anew: steps grow
        return True


class _Mark:
    def __init__(self) -> None:
        self.passed = threading.Event()

    def deliver(self, recorder: Recorder) -> None:
        self.passed.set()
