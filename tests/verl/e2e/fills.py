"""Gives every worker process of a job on CPUs a device to fill, more of it the higher its rank.

verl loads it ahead of the plugin with `VERL_USE_EXTERNAL_MODULES`.
"""

from __future__ import annotations

import os

import torch

from akka_otel_callbacks.verl.driver import job_memory
from akka_otel_callbacks.verl.worker import memory
from tests.support.allocator import ScriptedAllocator

TOTAL, EXTERNAL = 200_000_000, 7_000_000
HELD = 20_000_000
"""Of which the tiny model's weights and its optimizer are a part."""
LOADING = 90_000_000
"""Held for a moment before the training."""


def update_of(rank: int) -> int:
    """What a step's update takes at most, beside what is held."""
    return 30_000_000 + 10_000_000 * rank


class Device(ScriptedAllocator):
    """The first of every two mini-batches takes a rank's most, the second a tenth of it."""

    def __init__(self) -> None:
        super().__init__(TOTAL, EXTERNAL, torch.device("cpu"))
        self._update = update_of(int(os.environ["RANK"]))
        self.take("held", HELD)
        self.take("loading", LOADING)
        self.give_back("loading")
        self.reserved = HELD  # as after emptying the cache

    def reset_peak(self) -> None:
        super().reset_peak()
        update = self._update if self.resets % 2 else self._update // 10
        self.take("update", update)
        self.give_back("update")


memory.ALLOCATORS["cpu"] = Device
job_memory.ANSWER_TIMEOUT_S, job_memory.WAIT_TIMEOUT_S = 20.0, 30.0  # a busy machine takes its time
