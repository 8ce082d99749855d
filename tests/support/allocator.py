"""A device's memory that tests script."""

from __future__ import annotations

from collections import Counter

import torch

from akka_otel_callbacks.common.memory.allocator import Usage

META = torch.device("meta")


class ScriptedAllocator:
    """A caching allocator that remembers which part every byte was for, so that it can tell the truth about a peak."""

    def __init__(self, total: int = 10_000, external: int = 700, device: torch.device = META) -> None:
        self.device, self.total, self.external = device, total, external
        self.held: Counter[str] = Counter()
        self.reserved = self.max_allocated = self.max_reserved = 0
        self.at_peak: Counter[str] = Counter()
        self.resets = 0

    @property
    def allocated(self) -> int:
        return sum(self.held.values())

    def take(self, part: str, size: int) -> None:
        self.held[part] += size
        self.reserved = max(self.reserved, self.allocated)
        self._mark()

    def give_back(self, part: str, size: int | None = None) -> None:
        self.held[part] -= self.held[part] if size is None else size

    def waste(self, size: int) -> None:
        """Reserves memory that no tensor gets."""
        self.reserved += size
        self._mark()

    def _mark(self) -> None:
        self.max_reserved = max(self.max_reserved, self.reserved)
        if self.allocated > self.max_allocated:
            self.max_allocated, self.at_peak = self.allocated, self.held.copy()

    def usage(self) -> Usage:
        return Usage(self.allocated, self.max_allocated, self.reserved, self.max_reserved)

    def reset_peak(self) -> None:
        self.resets += 1
        self.max_allocated, self.max_reserved, self.at_peak = self.allocated, self.reserved, self.held.copy()

    def driver(self) -> tuple[int, int]:
        return self.total - self.reserved - self.external, self.total
