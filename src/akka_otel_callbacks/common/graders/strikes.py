"""Counts failures in a row, after which a judge ends the job instead of letting it train on zeros."""

from __future__ import annotations

import threading
from typing import NoReturn


class JudgeStopped(RuntimeError):
    """Ends the job: the judge refuses its credentials, or failed too many calls in a row."""


class Strikes:
    """Counts a judge's failed calls in this process. Calls that are under way at the same time count in the order in
    which they end.

    Args:
        most: how many in a row end the job.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0
        self._stopped: str | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Does nothing while the judge is in use.

        Raises:
            JudgeStopped: the judge has ended the job.
        """
        if self._stopped is not None:
            raise JudgeStopped(self._stopped)

    def succeeded(self) -> None:
        with self._lock:
            self._in_a_row = 0

    def failed(self, judge: str, hint: str) -> None:
        """Counts a failed call.

        Raises:
            JudgeStopped: it was one too many. The message names the judge and the last failure.
        """
        with self._lock:
            self._in_a_row += 1
            is_last = self._in_a_row >= self._most
        if is_last:
            self.stop(f"{self._most} calls in a row of {judge} failed: {hint}")
        self.check()

    def stop(self, why: str) -> NoReturn:
        """Ends the job.

        Raises:
            JudgeStopped: always.
        """
        with self._lock:
            self._stopped = stopped = self._stopped or f"{why}. To go on, mend this and make a new Judge"
        raise JudgeStopped(stopped)
