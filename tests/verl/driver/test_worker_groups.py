"""What the driver asks of all workers, with Ray scripted; `e2e/` has it between real processes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.verl.driver import worker_groups
from akka_otel_callbacks.verl.worker import process


def test_flushing_without_ray_or_workers_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    worker_groups.flush_workers()
    monkeypatch.delitem(sys.modules, "ray")
    worker_groups.flush_workers()


def test_every_worker_is_flushed_once_and_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    called: list[str] = []

    def handle(actor_id: str) -> Any:
        def remote(function: Any, timeout_s: float) -> str:
            assert function is process.flush
            called.append(actor_id)
            return actor_id

        return SimpleNamespace(_actor_id=actor_id, __ray_call__=SimpleNamespace(remote=remote))

    class Group:
        def __init__(self, *workers: str) -> None:
            self._workers = [handle(worker) for worker in workers]

    worker_groups.install(SimpleNamespace(RayWorkerGroup=Group))  # type: ignore[arg-type]
    groups = [Group("a", "b"), Group("b", "c"), Group("gone")]
    del groups[-1]
    ray = SimpleNamespace(
        is_initialized=lambda: True, wait=lambda refs, num_returns, timeout: waited.append((refs, num_returns, timeout))
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    worker_groups.flush_workers()
    assert sorted(called) == ["a", "b", "c"]
    ((refs, count, timeout_s),) = waited
    assert (sorted(refs), count, timeout_s) == (["a", "b", "c"], 3, 5.0)
