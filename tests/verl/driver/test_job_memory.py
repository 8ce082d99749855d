"""The driver's side of the workers' memory, with Ray scripted; `e2e/` has it between real processes."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.memory.account import Held, Peak, Phase, StepMemory
from akka_otel_callbacks.verl.driver import job_memory
from akka_otel_callbacks.verl.driver.job_memory import JobMemory, Request
from akka_otel_callbacks.verl.state import STATE
from akka_otel_callbacks.verl.worker import memory

UPDATE = {"actor/grad_norm": 0.5}


class RayError(Exception):
    pass


class Ray:
    """As much of Ray as is used: a call is done at once, or never by a worker that hangs."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, **workers: Any) -> None:
        self.workers = workers
        self.called: list[str] = []
        self.hanging: set[str] = set()
        self.initialized = True
        self.groups: list[Any] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def handle(self, name: str) -> Any:
        def remote(function: Callable[[Any], Any]) -> str:
            assert function is memory.answer
            self.called.append(name)
            return f"call of {name}"

        return SimpleNamespace(_actor_id=name, __ray_call__=SimpleNamespace(remote=remote))

    def wait(self, calls: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        assert num_returns == len(calls)
        pending = [call for call in calls if call.split()[-1] in self.hanging]
        if pending:
            time.sleep(timeout)
        return [call for call in calls if call not in pending], pending

    def get(self, call: str) -> Any:
        answer = self.workers[call.split()[-1]]
        if isinstance(answer, Exception):
            raise answer
        return answer


def held(allocated: int, reserved: int, activations: int = 0) -> StepMemory:
    phase = Phase(False, allocated - activations, 0, allocated)
    return StepMemory(allocated, reserved, Peak(Held(), phase, reserved, 0, 5, 1000))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Ray:
    """A job of two workers that train and one that does not, in two groups that share a worker."""
    ray = Ray(a=held(500, 600, 100), b=held(700, 750, 300), critic=None)
    group = type("Group", (), {})
    both, trainers = group(), group()
    both._workers = [ray.handle(name) for name in ("a", "b", "critic")]
    trainers._workers = both._workers[:2]
    ray.groups = [both, trainers]
    STATE.worker_groups.update(ray.groups)
    monkeypatch.setitem(job_memory.sys.modules, "ray", ray)
    guard.failures.clear()
    return ray


def answered(memory_of_job: JobMemory, row: Any = UPDATE) -> StepMemory | None:
    return memory_of_job.ask(row)()


def test_the_jobs_figures_are_those_of_its_fullest_worker(job: Ray) -> None:
    found = answered(JobMemory({}))
    assert (found.max_allocated, found.max_reserved) == (700, 750)
    assert found.parts()["activations"] == 300
    assert sorted(job.called) == ["a", "b", "critic"]
    assert not guard.failures


def test_a_worker_without_an_account_is_asked_once(job: Ray) -> None:
    memory_of_job = JobMemory({})
    for _ in range(3):
        answered(memory_of_job)
    assert job.called.count("critic") == 1
    assert job.called.count("a") == job.called.count("b") == 3


@pytest.mark.parametrize("row", [{"training/global_step": 1}, {"val/loss": 1.0}, {}])
def test_a_step_that_did_not_train_the_policy_asks_nobody(job: Ray, row: Any) -> None:
    assert JobMemory({}).ask(row) is None
    assert job.called == []


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_a_device_without_accounts_asks_nobody(job: Ray, device: str) -> None:
    assert JobMemory({"trainer": {"device": device}}).ask(UPDATE) is None
    assert job.called == []


def test_without_ray_there_is_nobody_to_ask(job: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    job.initialized = False
    assert JobMemory({}).ask(UPDATE) is None
    monkeypatch.delitem(job_memory.sys.modules, "ray")
    assert JobMemory({}).ask(UPDATE) is None


def test_without_workers_there_is_nothing(job: Ray) -> None:
    STATE.worker_groups.clear()
    assert answered(JobMemory({})) is None


def test_a_process_that_trains_itself_asks_itself(job: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    own = held(300, 400)
    monkeypatch.setattr(memory, "answer", lambda: own)
    assert JobMemory({}).ask({"train/loss": 1.0})() is own
    assert job.called == []


def test_a_worker_that_hangs_leaves_the_marks_within_the_bound(job: Ray) -> None:
    memory_of_job = JobMemory({})
    assert answered(memory_of_job).max_allocated == 700
    job.hanging.add("b")
    started = time.monotonic()
    found = answered(memory_of_job)
    assert time.monotonic() - started < job_memory.WAIT_TIMEOUT_S + 2
    assert found.parts() is None  # those of the other worker are not the fullest one's
    assert (found.max_allocated, found.max_reserved) == (700, 750)  # which can only have risen since
    job.hanging.clear()
    assert answered(memory_of_job).parts()["activations"] == 300


def test_a_worker_that_was_never_heard_may_be_the_fullest(job: Ray) -> None:
    job.hanging.add("b")
    found = answered(JobMemory({}))
    assert (found.max_allocated, found.parts()) == (500, None)


def test_a_worker_that_lost_its_parts_may_be_the_fullest(job: Ray) -> None:
    job.workers["b"] = StepMemory(700, 750)
    found = answered(JobMemory({}))
    assert (found.max_allocated, found.parts()) == (700, None)


def test_workers_are_given_their_time_from_when_they_were_asked(job: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    ask, wait = JobMemory.workers, job.wait
    monkeypatch.setattr(JobMemory, "workers", lambda self: time.sleep(0.1) or ask(self))
    monkeypatch.setattr(
        job, "wait", lambda calls, num_returns, timeout: given.append(timeout) or wait(calls, num_returns, timeout)
    )
    assert answered(JobMemory({})) is not None
    assert given == [job_memory.ANSWER_TIMEOUT_S]


def test_fully_async_has_marks_alone(job: Ray) -> None:
    """Its row of a step lacks the update that the workers ran last."""
    found = answered(JobMemory({"async_training": {"trigger_parameter_sync_step": 2}}))
    assert (found.max_allocated, found.max_reserved, found.parts()) == (700, 750, None)


def test_verls_fully_async_trainer_still_logs_before_it_adds_the_last_update() -> None:
    folder = pathlib.Path(pytest.importorskip("verl").__file__).parent / "experimental" / "fully_async_policy"
    _, step = (folder / "fully_async_trainer.py").read_text().split("async def fit_step(", 1)
    assert step.index("self._fit_log_aggregated_training_metrics(") < step.index("self._fit_postprocess_step()")


def test_workers_that_all_hang_leave_nothing(job: Ray) -> None:
    memory_of_job = JobMemory({})
    answered(memory_of_job)
    job.hanging.update("ab")
    assert answered(memory_of_job) is None


def test_a_backlog_of_steps_does_not_add_up(job: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_memory, "ANSWER_TIMEOUT_S", 30.0)  # the threads themselves hang
    job.hanging.add("a")
    hanging = [Request(JobMemory({})) for _ in range(5)]
    for each in hanging:
        each.start()
    started = time.monotonic()
    assert [each.result() for each in hanging] == [None] * 5
    assert time.monotonic() - started < job_memory.WAIT_TIMEOUT_S + 2, "each step's request waited by itself"


def test_one_request_at_a_time(job: Ray) -> None:
    """And the training thread waits for none: the first is still under way when the second is refused."""
    job.hanging.add("a")
    memory_of_job = JobMemory({})
    assert memory_of_job.ask(UPDATE) is not None
    assert memory_of_job.ask(UPDATE) is None


def test_a_worker_that_died_is_left_out(job: Ray) -> None:
    job.workers["b"] = RayError("the actor died")
    found = answered(JobMemory({}))
    assert (found.max_allocated, found.parts()) == (500, None)
    assert not guard.failures


def test_a_ray_that_fails_costs_the_figure(job: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "wait", lambda *_, **__: 1 / 0)
    assert answered(JobMemory({})) is None
    assert guard.failures.total() == 1
    guard.failures.clear()
