"""What TRL has appended to its metric buffers: a step's own values, whatever its `logging_steps` and strategy are.

TRL appends each value to a list in `trainer._metrics["train"]` at once, and drops all lists at each log of the
training. It keeps them at a log of an evaluation, and they may have leftovers of an earlier training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

NewValues = dict[str, list[Any]]


Mark = tuple[Sequence[str], Sequence[Any], Sequence[int]]
"""How far the buffers are filled at one moment: their keys, the lists, and the lists' lengths, in the same order. The
training thread takes no more than that. Lists only grow at their ends, so what lies between two marks can be read
later. A dictionary of them would take four times the memory, which waits with the step.
"""


class Marker:
    """Marks the buffers of one training, again and again. Mostly they have the same keys as the time before.

    Attributes:
        wanted: the keys that are marked, None for all. TRL's other lists need not wait with the step, which is half of
            what it holds. Once keys are left out, they must not be wanted again: what was appended to them since the
            latest mark would not be known.
    """

    def __init__(self) -> None:
        self.wanted: frozenset[str] | None = None
        self._chosen_by: frozenset[str] | None = None
        self._found: list[str] = []
        self._keys: list[str] = []

    def mark(self, buffers: Mapping[str, Any]) -> Mark:
        found = [*buffers]
        if found != self._found or self._chosen_by is not self.wanted:
            self._found, self._chosen_by = found, self.wanted
            self._keys = [key for key in found if self.wanted is None or key in self.wanted]
        lists: list[Any] = [*map(buffers.get, self._keys)]
        try:
            return self._keys, lists, [*map(len, lists)]  # a third of what it takes to look at each of them first
        except TypeError:  # not all of them have a length
            return self._keys, lists, [len(values) if values.__class__ is list else 0 for values in lists]


def new_values(marks: Sequence[Mark]) -> NewValues:
    """What was appended from each mark to the next. If a list is not the same as at the mark before, it was begun anew
    after a log. `num_tokens` is always a new list of one value."""
    found: NewValues = {}
    for before, now in pairwise(map(_by_key, marks)):
        for key, (values, end) in now.items():
            if values.__class__ is not list:
                continue
            old, start = before.get(key, (None, 0))
            if old is not values:
                start = 0
            if start > end:
                start = 0
            if start < end <= len(values):  # a list that was emptied since says nothing
                new = values[start:end]
                found[key] = found[key] + new if key in found else new
    return found


def _by_key(mark: Mark) -> dict[str, tuple[Any, int]]:
    keys, lists, lengths = mark
    return dict(zip(keys, zip(lists, lengths, strict=True), strict=True))
