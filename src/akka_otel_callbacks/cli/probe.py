"""Whether targets can be used: what `doctor` finds out before a training does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from akka_otel_callbacks.common.export.targets.target import Answer, Target

PATIENCE_S = 2.0


def probe(targets: Iterable[Target]) -> list[Answer]:
    """Tries all targets at once, each for at most `PATIENCE_S` seconds."""
    probes = [_Probe(target) for target in targets]
    deadline = time.monotonic() + PATIENCE_S
    return [each.answer(deadline) for each in probes]


class _Probe:
    """The probe of one target. It has a thread of its own, because a library may hang."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._answer = Answer(False, f"no answer within {PATIENCE_S:.0f} s")
        self._thread = threading.Thread(target=self._try, daemon=True)
        self._thread.start()

    def answer(self, deadline: float) -> Answer:
        self._thread.join(max(deadline - time.monotonic(), 0))
        return self._answer

    def _try(self) -> None:
        try:
            self._answer = self._target.probe(2 * PATIENCE_S)
        except Exception as error:  # noqa: BLE001 - libraries raise whatever they raise
            self._answer = Answer(False, self._target.why(error))
