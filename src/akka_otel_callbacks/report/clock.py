"""Which step a training was at, at any time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


class Clock:
    """The completed steps of one attempt.

    Args:
        start: when the attempt began, in Unix nanoseconds.
        times: when each step was complete, ascending, in Unix nanoseconds.
        steps: the engine's number of each of them.
        end: when the attempt ended, or was last heard of. What its last export tells, after that, is of its end.
    """

    def __init__(self, start: int, times: Sequence[int], steps: Sequence[float], end: int) -> None:
        first = steps[0] - 1 if steps else -1.0
        begin = min(start, times[0]) if times else start
        self.times = [begin, *times] if times else [begin, max(end, begin + 1)]
        self.steps = [first, *steps] if times else [first, 0.0]
        self.end = max(end, self.times[-1])  # a step may be told after the end

    def step(self, time: int) -> float:
        """The newest step that was complete by then; the number before the first one where none was."""
        return self.steps[max(bisect_right(self.times, time) - 1, 0)]

    def position(self, time: int) -> float:
        """Like `step`, plus the part of the next step that had passed by then, from 0 to 1. A step that has not ended
        takes as long as the one before it, and one at most."""
        time = min(time, self.end)
        place = bisect_right(self.times, time) - 1
        if place < 0:
            return self.steps[0]
        here = self.steps[place]
        if place + 1 < len(self.times):
            length, height = self.times[place + 1] - self.times[place], self.steps[place + 1] - here
        else:
            length, height = self.times[place] - self.times[place - 1], 1.0
        return here + height * min((time - self.times[place]) / max(length, 1), 1.0)
