"""A device's memory, as torch's caching allocator and the device's driver count it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch


class Usage(NamedTuple):
    """The caching allocator's counters, in bytes. The maxima count since they were last reset."""

    allocated: int
    max_allocated: int
    reserved: int
    max_reserved: int


class Allocator(Protocol):
    """A device's memory, read without waiting for the device."""

    device: torch.device

    def usage(self) -> Usage | None:
        """The counters. None if the process has not used the device."""

    def reset_peak(self) -> None:
        """Sets the maxima to what is allocated and reserved now."""

    def driver(self) -> tuple[int, int]:
        """Free and total bytes of the device."""


class CudaAllocator:
    """torch's caching allocator on one CUDA device.

    Args:
        ordinal: the 1 of `cuda:1`.
    """

    def __init__(self, ordinal: int) -> None:
        import torch

        self.device = torch.device("cuda", ordinal)
        self._memory = torch.cuda.memory

    def usage(self) -> Usage | None:
        stats = self._memory.memory_stats_as_nested_dict(self.device)
        if not stats:
            return None
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return Usage(allocated["current"], allocated["peak"], reserved["current"], reserved["peak"])

    def reset_peak(self) -> None:
        self._memory.reset_peak_memory_stats(self.device)

    def driver(self) -> tuple[int, int]:
        free, total = self._memory.mem_get_info(self.device)
        return free, total
