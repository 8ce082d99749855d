"""What TRL has appended to its metric buffers since the last look: a step's own values, whatever `logging_steps` and
`logging_strategy` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NewValues = dict[str, list[Any]]


class NewValueReader:
    """Reads `trainer._metrics["train"]`, where TRL appends each value as it arises and drops all lists at each log of
    the training. A log of an evaluation leaves them, and leftovers of an earlier training may be in them."""

    def __init__(self, buffers: Mapping[str, list[Any]]) -> None:
        """Takes what is in the buffers already as read."""
        self._read: dict[str, tuple[list[Any], int]] = {}
        self.new(buffers)

    def new(self, buffers: Mapping[str, list[Any]]) -> NewValues:
        """What was appended since the last call. A list that is not the one of that call was begun anew after a log;
        `num_tokens` is always a new list of one."""
        found: NewValues = {}
        known = self._read
        for key, values in buffers.items():
            if type(values) is not list:
                continue
            read, length = known.get(key), len(values)
            start = read[1] if read is not None and read[0] is values and read[1] <= length else 0
            if start < length:
                found[key] = values[start:] if start else values.copy()
            known[key] = values, length
        return found
