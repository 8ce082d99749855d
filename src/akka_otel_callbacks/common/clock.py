"""The time of figures: Unix time that does not go back.

A clock that is set back, as by NTP after a machine's start, would give a series an earlier point after a later one,
which servers refuse. From then on time goes on from where it was, as fast as before.
"""

from __future__ import annotations

import time

MILLISECOND_NS = 1_000_000


def after(time_ns: int, last_ns: int) -> int:
    """This time, or the beginning of the millisecond after the last one's.

    Prometheus keeps milliseconds. Of two points of a series in one millisecond it drops the second without a word, or
    refuses the whole export that has it. Logs of past runs may have several steps at one time.
    """
    return max(time_ns, (last_ns // MILLISECOND_NS + 1) * MILLISECOND_NS)


class Clock:
    """The system's clock, and beside it the one that nobody sets."""

    def __init__(self) -> None:
        self._ahead_ns = self._measured_ns()

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""
        self._ahead_ns = max(self._ahead_ns, self._measured_ns())
        return time.monotonic_ns() + self._ahead_ns

    def unix_ns(self, monotonic_ns: int) -> int:
        """The Unix time in nanoseconds of an earlier reading of `time.monotonic_ns`. To take that reading costs a
        fraction of `now_ns`."""
        self._ahead_ns = max(self._ahead_ns, self._measured_ns())
        return monotonic_ns + self._ahead_ns

    def _measured_ns(self) -> int:
        return time.time_ns() - time.monotonic_ns()  # in this order, a pause in between makes it less and never more


_clock = Clock()
now_ns, unix_ns = _clock.now_ns, _clock.unix_ns
