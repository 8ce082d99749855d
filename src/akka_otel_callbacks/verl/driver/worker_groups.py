"""The workers that this process drives, to ask all of them at once."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.patching.calls import Call, after
from akka_otel_callbacks.verl.state import STATE
from akka_otel_callbacks.verl.worker import process

FLUSH_TIMEOUT_S = 5.0


def install(ray_base: ModuleType) -> None:
    after(ray_base.RayWorkerGroup, "__init__", _remember)


def driven_workers() -> dict[Any, Any]:
    """Ray's handles of the workers, each once: several groups may have the same worker."""
    return {handle._actor_id: handle for group in list(STATE.worker_groups) for handle in group._workers}


@guarded
def flush_workers(timeout_s: float = FLUSH_TIMEOUT_S) -> None:
    """Has every worker export now, and waits for all of them together for at most `timeout_s`."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return
    calls = [handle.__ray_call__.remote(process.flush, timeout_s) for handle in driven_workers().values()]
    if calls:
        ray.wait(calls, num_returns=len(calls), timeout=timeout_s)


def _remember(init: Call) -> None:
    STATE.worker_groups.add(init.owner)
