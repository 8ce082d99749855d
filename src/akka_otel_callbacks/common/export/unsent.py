"""The steps that an exporter has not sent yet."""

from __future__ import annotations

from typing import NamedTuple

from akka_otel_callbacks.common.recording.recorder import Record
from akka_otel_callbacks.common.vocabulary.points import Figures

MOST_STEPS = 256
"""The most points of its own that a series has in one export. When there is one more, every second point is left out,
so the points that are sent stay even over time."""


class Moment(NamedTuple):
    """The figures that were reported at one time."""

    time_ns: int
    figures: Figures


class Unsent:
    """Keeps each step and each evaluation until an export that had it has arrived. Evaluations are kept apart, because
    a thousand quick steps between two of them must not thin them out."""

    def __init__(self) -> None:
        self._steps, self._amendments = _Even(), _Even()
        self.rejected = 0
        """How many steps the receiver rejected since the start."""

    @property
    def steps(self) -> int:
        """How many steps have points of their own to be sent."""
        return len(self._steps)

    @property
    def thinned(self) -> int:
        """How many steps were left out since the start."""
        return self._steps.left_out

    def add(self, record: Record) -> None:
        if record.figures:
            kept = self._steps if record.completes else self._amendments
            kept.add(Moment(record.time_ns, record.figures))

    def take(self) -> list[Moment]:
        """Everything to be sent, in the order of time."""
        return sorted([*self._steps.take(), *self._amendments.take()], key=lambda moment: moment.time_ns)

    def sent(self, until_ns: int, *, rejected: bool = False) -> None:
        """Notes that what `take` gave has arrived up to this time, or was rejected."""
        before = len(self._steps)
        self._steps.sent(until_ns)
        self._amendments.sent(until_ns)
        if rejected:
            self.rejected += before - len(self._steps)


class _Even:
    """Keeps at most `MOST_STEPS` moments. If more come, it keeps every second, fourth, eighth … of them, and the
    latest. Its figures arrive in any case, as those that hold now, so it must not count as left out."""

    def __init__(self) -> None:
        self.left_out = 0
        self._taken: list[Moment] = []
        self._new: list[Moment] = []
        self._latest: list[Moment] = []
        """The newest of all, if it is not among the taken yet."""
        self._seen, self._every = 0, 1

    def __len__(self) -> int:
        return len(self._taken) + len(self._new) + len(self._latest)

    def add(self, moment: Moment) -> None:
        for earlier in self._latest:
            self._select(earlier)
        self._latest = [moment]

    def _select(self, moment: Moment) -> None:
        if self._seen % self._every == 0:
            self._new.append(moment)
        else:
            self.left_out += 1
        self._seen += 1
        if len(self._new) > MOST_STEPS:
            self._new = self._halved(self._new)
            self._every *= 2

    def take(self) -> list[Moment]:
        self._taken += self._new
        while len(self._taken) + len(self._latest) > MOST_STEPS:
            self._taken = self._halved(self._taken)
        self._taken += self._latest
        self._new, self._latest, self._seen, self._every = [], [], 0, 1
        return self._taken

    def sent(self, until_ns: int) -> None:
        self._taken = [moment for moment in self._taken if moment.time_ns > until_ns]

    def _halved(self, moments: list[Moment]) -> list[Moment]:
        kept = moments[::2]
        self.left_out += len(moments) - len(kept)
        return kept
