"""The new ends of TRL's metric buffers: a step's own values, whatever `logging_steps` and `logging_strategy` are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tails = dict[str, list[Any]]


class TailReader:
    """Reads `trainer._metrics["train"]`, where TRL appends each value as it arises and clears all at each log."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}

    def new(self, buffers: Mapping[str, list[Any]]) -> Tails:
        """What was appended since the last call. A list that shrank was cleared by a log in between. `num_tokens` is a
        list of one that TRL replaces: its latest value is always new."""
        read = self._read
        tails: Tails = {}
        for key, values in buffers.items():
            length = len(values)
            start = read.get(key, 0)
            if start > length or key == "num_tokens":
                start = 0
            if start < length:
                tails[key] = values[start:]
            read[key] = length
        return tails

    def cleared(self) -> None:
        """The trainer logged, which empties the buffers."""
        self._read.clear()
