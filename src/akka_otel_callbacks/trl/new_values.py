"""What TRL has appended to its metric buffers: a step's own values, whatever its `logging_steps` and strategy are.

TRL appends each value to a list in `trainer._metrics["train"]` at once, and drops all lists at each log of the
training. It keeps them at a log of an evaluation, and they may have leftovers of an earlier training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

NewValues = dict[str, list[Any]]


Mark = tuple[Sequence[str], Sequence[Any], Sequence[int]]
"""How far the buffers are filled at one moment: their keys, the lists, and the lists' lengths, in the same order. The
training thread takes no more than that. Lists only grow at their ends, so what lies between two marks can be read
later. A dictionary of them would take four times the memory, which waits with the step.
"""


def mark(buffers: Mapping[str, Any]) -> Mark:
    keys, lists = [*buffers], [*buffers.values()]
    try:
        return keys, lists, [*map(len, lists)]  # a third of what it takes to look at each of them first
    except TypeError:  # not all of them have a length
        return keys, lists, [len(values) if values.__class__ is list else 0 for values in lists]


def new_values(marks: Sequence[Mark], keys: Iterable[str] | None = None) -> NewValues:
    """What was appended from each mark to the next. If a list is not the same as at the mark before, it was begun anew
    after a log. `num_tokens` is always a new list of one value.

    Args:
        keys: the keys to read. None reads all.
    """
    found: NewValues = {}
    for before, now in pairwise(map(_by_key, marks)):
        for key in now if keys is None else now.keys() & keys:
            values, end = now[key]
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
