"""The steps of a training, from the queue of their captures to the figures and counts that hold now."""

from __future__ import annotations

from collections.abc import Iterable

from akka_otel_callbacks.common.recording.recorder import Recorder, Snapshot
from akka_otel_callbacks.common.recording.translator import Translator
from akka_otel_callbacks.common.threads import ExportLoop
from akka_otel_callbacks.common.vocabulary.step import Step

PATIENCE_S = 1.0
"""How long a collection waits for the translation of what was captured before it. It is half of what a close may
take, so that what is translated by then has time to be sent."""


class Steps:
    """The training thread adds captures, a thread of their own turns them into figures, and exporters read those."""

    def __init__(self, step_type: type[Step]) -> None:
        self.step_type = step_type
        self.recorder = Recorder(step_type)
        """What the captures have become so far."""
        self._loops: list[ExportLoop] = []
        self._translator = Translator(self.recorder, self._loops)
        self.add = self._translator.add
        """`Translator.add` itself, which saves a call on the training thread."""

    def wake(self, loops: Iterable[ExportLoop]) -> None:
        """Has the loops told of every step when its figures are there."""
        self._loops.extend(loops)

    def start(self) -> None:
        self._translator.start()

    def waiting(self) -> int:
        """How many captures have not been translated yet."""
        return self._translator.waiting()

    def catch_up(self, timeout_s: float) -> bool:
        """Waits until everything that has been captured by now is translated. False if that takes longer."""
        return self._translator.catch_up(timeout_s)

    def drain(self, timeout_s: float) -> Snapshot:
        """Waits like `catch_up`, and returns the figures that hold then."""
        self.catch_up(timeout_s)
        with self.recorder.lock:
            return self.recorder.snapshot()

    def known_until_ns(self, now_ns: int) -> int:
        """A time up to which every capture has been translated. Each call returns a later one. The caller holds the
        recorder's lock."""
        return self.recorder.next_ns(self._translator.known_until_ns(now_ns))

    def stop(self) -> None:
        """Has the thread end after what is still in its queue. Returns at once."""
        self._translator.stop()

    def join(self, timeout_s: float) -> None:
        if self._translator.is_alive():
            self._translator.join(timeout_s)

    def say_what_is_missing(self) -> None:
        """Logs at the end which captures and figures were lost."""
        self._translator.say_what_is_missing()
