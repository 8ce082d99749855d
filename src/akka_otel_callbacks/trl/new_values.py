"""What TRL has appended to its metric buffers: a step's own values, whatever its `logging_steps` and strategy are.

TRL appends each value to a list in `trainer._metrics["train"]` at once, and drops all lists at each log of the
training. It keeps them at a log of an evaluation, and they may have leftovers of an earlier training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    Args:
        is_read: whether a key is ever read. The lists of others need not wait with the step.
    """

    def __init__(self, is_read: Callable[[str], bool]) -> None:
        self._is_read = is_read
        self._found: list[str] = []
        self._keys: list[str] = []

    def mark(self, buffers: Mapping[str, Any]) -> Mark:
        found = [*buffers]
        if found != self._found:
            self._found, self._keys = found, [*filter(self._is_read, found)]
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
