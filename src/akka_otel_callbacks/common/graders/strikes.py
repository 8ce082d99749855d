"""Counts failures in a row, after which a judge ends the job instead of letting it train on zeros."""

from __future__ import annotations

import threading
from typing import NoReturn


class JudgeStopped(RuntimeError):
    """Ends the job: the judge refuses its credentials, or failed too many calls in a row."""


class Strikes:
    """Counts a judge's failed calls in this process, whichever of them are under way at once, in the order of their
    ends.

    Args:
        most: how many in a row end the job.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0
        self._stopped: str | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises:
        JudgeStopped: the judge has ended the job already.
        """
        if self._stopped is not None:
            raise JudgeStopped(self._stopped)

    def succeeded(self) -> None:
        with self._lock:
            self._in_a_row = 0

    def failed(self, judge: str, hint: str) -> None:
        """Raises:
        JudgeStopped: it was one too many. It names the judge and what the last failure was.
        """
        with self._lock:
            self._in_a_row += 1
            is_last = self._in_a_row >= self._most
        if is_last:
            self.stop(f"{self._most} calls in a row of {judge} failed: {hint}")
        self.check()

    def stop(self, why: str) -> NoReturn:
        """Raises:
        JudgeStopped: always.
        """
        with self._lock:
            self._stopped = stopped = self._stopped or f"{why}. To go on, mend this and make a new Judge"
        raise JudgeStopped(stopped)
