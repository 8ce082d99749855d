"""A checkpoint engine for disaggregated trainers without NCCL: the weights go through a file, one for each version.

Of `rollout.checkpoint_engine`, `backend` is `file` and `custom_backend_module` is `verl_cpu.weights`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

DIRECTORY = "VERL_CPU_WEIGHTS"
"""The environment variable that names the folder, which every node must see."""


@CheckpointEngineRegistry.register("file")
class FileEngine(CheckpointEngine):
    def __init__(self, bucket_size: int = 0, is_master: bool = False, **_: Any) -> None:
        self._is_master = is_master

    @classmethod
    def build_topology(cls, trainers: int, rollouts: int, metadata: Any) -> tuple[dict, dict]:
        return {"rank": list(range(trainers))}, {"rank": list(range(rollouts))}

    def prepare(self) -> dict[str, Any]:
        return {}

    def init_process_group(self, rank: int = 0, **_: Any) -> None: ...

    def finalize(self) -> None: ...

    async def send_weights(self, weights: Iterable, global_steps: int | None = None) -> dict[str, Any]:
        state = {name: tensor.detach().cpu().clone() for name, tensor in weights}
        if self._is_master:
            path = _path(global_steps)
            torch.save(state, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        return {}

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        while not _path(global_steps).exists():
            await asyncio.sleep(0.05)
        for item in torch.load(_path(global_steps)).items():
            yield item


def _path(version: int | None) -> Path:
    folder = Path(os.environ[DIRECTORY])
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{version}.pt"
