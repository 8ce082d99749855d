"""Asks a job's workers what filled their devices, once a step, on a thread beside the training."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.memory.account import StepMemory, most_reserved
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.vocabulary import SFT_STEP_KEY, Logged
from akka_otel_callbacks.verl.driver.worker_groups import driven_workers
from akka_otel_callbacks.verl.worker import memory

ANSWER_TIMEOUT_S = 0.5
"""Seconds for which a request waits for the workers after it has asked them. A worker answers within milliseconds
between two of verl's calls."""
WAIT_TIMEOUT_S = 1.0
"""Seconds for which the translator waits for a request after the request began. A request may have many workers to
ask."""
UPDATED = ("actor/grad_norm", SFT_STEP_KEY)
"""Keys of a step that trained the policy. A worker that has no account after such a step never has one."""

MemoryOfStep = Callable[[], StepMemory | None]
"""Gives the job's memory in one step, on the translator's thread."""


class JobMemory:
    """The memory of a job, from its workers or, without Ray, from this process's own account.

    Args:
        config: verl's configuration.
    """

    def __init__(self, config: Any) -> None:
        self._has_accounts = get(config, "trainer.device", "cuda") in memory.ALLOCATORS
        # fully_async logs a step before it adds the update just run, so that the latest updates are of two steps.
        self._marks_only = get(config, "async_training") is not None
        self._without: set[Any] = set()
        self._marks: dict[Any, StepMemory] = {}
        self._latest: Request | None = None

    @guarded
    def ask(self, logged: Logged) -> MemoryOfStep | None:
        """Begins to ask for the step of a log call, and waits for nothing. None if there is nobody to ask, or if the
        request before is not done."""
        if not self._has_accounts or not any(key in logged for key in UPDATED):
            return None
        own = memory.answer()
        if own is not None:
            return lambda: own
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized() or (self._latest is not None and self._latest.is_alive()):
            return None
        self._latest = Request(self)
        self._latest.start()
        return self._latest.result

    def workers(self) -> dict[Any, Any]:
        """The workers that may have an account, by their ID."""
        return {name: handle for name, handle in driven_workers().items() if name not in self._without}

    def received(self, answers: Mapping[Any, StepMemory | None], *, complete: bool) -> StepMemory | None:
        """The job's figures from its workers' answers. The marks only rise, so the last known marks of a worker that
        was left out still count. That worker may have been the fullest, so no other worker's parts stand for the job.

        Args:
            complete: whether everyone who was asked has answered.
        """
        told = {name: answer for name, answer in answers.items() if answer is not None}
        self._without.update(answers.keys() - told.keys())
        self._marks.update({name: StepMemory(last.max_allocated, last.max_reserved) for name, last in told.items()})
        has_parts = complete and not self._marks_only and all(last.peak is not None for last in told.values())
        return most_reserved([*(told.values() if has_parts else ()), *self._marks.values()]) if told else None


class Request(threading.Thread):
    """Asks the workers for one step."""

    def __init__(self, job: JobMemory) -> None:
        super().__init__(name="akka-otel-memory", daemon=True)
        self._job = job
        self._result: StepMemory | None = None
        self._began = time.monotonic()

    @guarded
    def run(self) -> None:
        ray = sys.modules["ray"]
        asked = self._job.workers()
        calls = {handle.__ray_call__.remote(memory.answer): name for name, handle in asked.items()}
        if calls:
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=ANSWER_TIMEOUT_S)
            answers = {calls[call]: answer for call, answer in _answers(ray, ready)}
            self._result = self._job.received(answers, complete=len(answers) == len(calls))

    def result(self) -> StepMemory | None:
        """The job's figures. None if no worker answered in time. It waits for the answers: only on the translator's
        thread."""
        self.join(max(0.0, self._began + WAIT_TIMEOUT_S - time.monotonic()))
        return self._result


def _answers(ray: Any, ready: list[Any]) -> Iterator[tuple[Any, StepMemory | None]]:
    for call in ready:
        with suppress(ray.exceptions.RayError):  # a worker that died
            yield call, ray.get(call)
