"""What TRL has appended to its metric buffers: a step's own values, whatever its `logging_steps` and strategy are.

TRL appends each value to a list in `trainer._metrics["train"]` at once, and drops all lists at each log of the
training. It keeps them at a log of an evaluation, and they may have leftovers of an earlier training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

NewValues = dict[str, list[Any]]


Mark = tuple[Mapping[str, Any], Sequence[int]]
"""How far the buffers are filled at one moment: the lists, and their lengths in the same order. The training thread
takes no more than that. Lists only grow at their ends, so what lies between two marks can be read later.
"""


def mark(buffers: Mapping[str, Any]) -> Mark:
    lists = dict(buffers)
    try:
        return lists, [*map(len, lists.values())]  # a third of what it takes to look at each of them first
    except TypeError:  # not all of them have a length
        return lists, [len(values) if values.__class__ is list else 0 for values in lists.values()]


def new_values(marks: Sequence[Mark], keys: Iterable[str] | None = None) -> NewValues:
    """What was appended from each mark to the next. If a list is not the same as at the mark before, it was begun anew
    after a log. `num_tokens` is always a new list of one value.

    Args:
        keys: the keys to read. None reads all.
    """
    found: NewValues = {}
    for (old, old_lengths), (lists, lengths) in pairwise(marks):
        starts, ends = dict(zip(old, old_lengths, strict=True)), dict(zip(lists, lengths, strict=True))
        for key in ends if keys is None else ends.keys() & keys:
            values, end = lists[key], ends[key]
            if values.__class__ is not list:
                continue
            start = starts[key] if old.get(key) is values else 0
            if start > end:
                start = 0
            if start < end <= len(values):  # a list that was emptied since says nothing
                new = values[start:end]
                found[key] = found[key] + new if key in found else new
    return found
