"""A worker's account of its memory, around verl's own engine and worker classes, with a scripted allocator."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from tensordict import TensorDict
from torch import nn
from verl.utils.tensordict_utils import assign_non_tensor, get
from verl.workers import engine_workers
from verl.workers.engine import base

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.memory.account import StepMemory
from akka_otel_callbacks.common.run import handed_on
from akka_otel_callbacks.common.vocabulary.names import MemoryComponent as Part
from akka_otel_callbacks.verl.state import STATE
from akka_otel_callbacks.verl.worker import memory
from tests.support.allocator import ScriptedAllocator

CPU = torch.device("cpu")
WEIGHTS = 3 * 2 * 4
OTHER = 100
TOTAL = 10_000
NO_DATA = TensorDict({}, batch_size=[])


class Engine(base.BaseEngine):
    """One linear layer under Adam, whose bytes go through the scripted allocator beside `activations` of a size that
    a test sets."""

    def __init__(self, allocator: ScriptedAllocator, model_type: str = "language_model") -> None:
        self.model_config = SimpleNamespace(model_type=model_type)
        self.allocator, self.activations = allocator, 0
        self.fails = False
        self.initialize()

    is_param_offload_enabled = is_optimizer_offload_enabled = False

    def initialize(self) -> None:
        self.module = nn.Linear(2, 3, bias=False)
        self.optimizer: Any = torch.optim.SGD(self.module.parameters(), momentum=0.9)

    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    def optimizer_zero_grad(self) -> None:
        self.optimizer.zero_grad()
        self.allocator.give_back(Part.GRADIENTS)

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        if self.fails:
            raise MemoryError("out of memory")
        self.module(torch.ones(2)).sum().backward()
        self.allocator.take(Part.GRADIENTS, WEIGHTS)
        self.allocator.take(Part.ACTIVATIONS, self.activations)
        self.allocator.give_back(Part.ACTIVATIONS)
        return {"loss": [0.5], "metrics": {}}

    def optimizer_step(self) -> float:
        if not self.optimizer.state:
            self.allocator.take(Part.OPTIMIZER, WEIGHTS)
        self.optimizer.step()
        return 1.5

    def get_data_parallel_group(self) -> None:
        return None

    def train(self, activations: int) -> Any:
        self.activations = activations
        return self.train_batch(NO_DATA, None)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedAllocator]:
    """Of a process that trains for a run with `akka_otel`, on a device of which it has not trained yet."""
    allocator = ScriptedAllocator(total=TOTAL, external=700, device=CPU)
    allocator.take(Part.WEIGHTS, WEIGHTS)
    allocator.take(Part.OTHER, OTHER)
    monkeypatch.setitem(memory.ALLOCATORS, "cuda", lambda: allocator)
    monkeypatch.setattr("verl.utils.device.get_device_name", lambda: "cuda")
    STATE.worker = object()  # type: ignore[assignment]
    monkeypatch.setenv(handed_on.RUN_VARIABLE, "run")
    memory.install(base)
    memory.install_marks(engine_workers)
    guard.failures.clear()
    yield allocator
    guard.failures.clear()


@pytest.fixture
def engine(allocator: ScriptedAllocator) -> Engine:
    """One that has trained a mini-batch, so that the optimizer has its state."""
    engine = Engine(allocator)
    engine.train(0)
    memory.answer()
    return engine


def test_the_peak_of_an_update_in_its_parts(engine: Engine) -> None:
    output = engine.train(3000)
    assert output["metrics"] == {"grad_norm": 1.5}
    answered = memory.answer()
    assert answered.parts() == {
        Part.WEIGHTS: WEIGHTS,
        Part.ADAPTER: 0,
        Part.GRADIENTS: WEIGHTS,
        Part.OPTIMIZER: WEIGHTS,
        Part.ACTIVATIONS: 3000,
        Part.GENERATION: 0,
        Part.OTHER: OTHER,
        Part.ALLOCATOR: 0,
        Part.EXTERNAL: 700,
        Part.FREE: TOTAL - 700 - (3 * WEIGHTS + OTHER + 3000),
    }
    assert (answered.max_allocated, answered.max_reserved) == (3 * WEIGHTS + OTHER + 3000,) * 2
    assert not guard.failures


def test_of_several_mini_batches_the_highest_stands_for_the_step(engine: Engine) -> None:
    for activations in (1000, 4000, 2000):  # the second finds room in what the first one's waste reserved
        engine.train(activations)
        engine.allocator.waste(50)
    engine.allocator.external = 900
    engine.train(10)
    parts = memory.answer().parts()
    assert parts[Part.ACTIVATIONS] == 4000
    assert parts[Part.ALLOCATOR] == 100  # what was reserved after it, too
    assert parts[Part.EXTERNAL] == 900  # as it was at the end
    assert sum(parts.values()) == TOTAL


def test_an_answer_begins_anew_and_the_marks_stay(engine: Engine) -> None:
    engine.train(4000)
    high = memory.answer()
    engine.train(1000)
    low = memory.answer()
    assert low.parts()[Part.ACTIVATIONS] == 1000
    assert (low.max_allocated, low.max_reserved) == (high.max_allocated, high.max_reserved)


def test_between_two_updates_there_are_marks_only(engine: Engine) -> None:
    engine.train(4000)
    first = memory.answer()
    assert memory.answer() == StepMemory(first.max_allocated, first.max_reserved, None)


def test_what_the_worker_did_between_two_updates_is_in_the_marks_alone(engine: Engine) -> None:
    engine.allocator.take("log probabilities", 6000)
    engine.allocator.give_back("log probabilities")
    engine.train(1000)
    answered = memory.answer()
    assert answered.max_allocated == 3 * WEIGHTS + OTHER + 6000  # a new gradient takes the place of the old one
    assert answered.parts()[Part.ACTIVATIONS] == 1000


def test_an_answer_travels_between_processes(engine: Engine) -> None:
    engine.train(1000)
    answered = memory.answer()
    assert pickle.loads(pickle.dumps(answered)) == answered
    assert pickle.loads(pickle.dumps(memory.answer)) is memory.answer


def test_before_the_first_update_there_is_no_answer(allocator: ScriptedAllocator) -> None:
    untrained = Engine(allocator)
    assert memory.answer() is None
    untrained.train(10)
    assert memory.answer() is not None


def test_models_and_optimizers_in_parts_are_counted_together(allocator: ScriptedAllocator) -> None:
    engine = Engine(allocator)
    chunks = [engine.module, nn.Linear(2, 3, bias=False)]
    optimizers = [torch.optim.SGD(chunk.parameters(), momentum=0.9) for chunk in chunks]

    class Chained:
        """As Megatron's: what it has as `state` is no dictionary."""

        chained_optimizers = optimizers
        state = None

        def zero_grad(self) -> None: ...

        def step(self) -> None:
            for optimizer in optimizers:
                optimizer.step()

    class Parts(Engine):
        def forward_backward_batch(self, *args: Any, **kwargs: Any) -> Any:
            for chunk in chunks:
                chunk(torch.ones(2)).sum().backward()
            return {"loss": [0.5], "metrics": {}}

        def optimizer_step(self) -> None:
            self.optimizer.step()

    allocator.take("room", 1000)
    engine = Parts(allocator)
    engine.module, engine.optimizer = chunks, Chained()
    engine.train(0)
    engine.train(0)
    parts = memory.answer().parts()
    assert (parts[Part.WEIGHTS], parts[Part.OPTIMIZER], parts[Part.GRADIENTS]) == (2 * WEIGHTS,) * 3
    assert not guard.failures


def test_a_model_that_was_replaced_is_counted_no_more(engine: Engine) -> None:
    import weakref

    old = weakref.ref(engine.module)
    engine.initialize()
    engine.module = nn.Linear(2, 5, bias=False)
    engine.optimizer = torch.optim.SGD(engine.module.parameters(), momentum=0.9)
    engine.train(10)
    assert memory.answer().parts()[Part.WEIGHTS] == 5 * 2 * 4
    assert old() is None


# Where there is none


def without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    STATE.worker = None


def on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl.utils.device.get_device_name", lambda: "npu")


def where_verls_marks_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "verl.workers.engine_workers")


def under_torchrun_beside_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handed_on.RUN_VARIABLE)
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.parametrize(
    "absent",
    [without_a_run, on_another_device, where_verls_marks_would_be_wrong, under_torchrun_beside_another_process],
)
def test_no_account(
    allocator: ScriptedAllocator, monkeypatch: pytest.MonkeyPatch, absent: Callable[[pytest.MonkeyPatch], None]
) -> None:
    absent(monkeypatch)
    engine = Engine(allocator)
    engine.train(1000)
    assert memory.answer() is None
    assert allocator.resets == 0
    assert not guard.failures


def test_a_critic_has_no_account(allocator: ScriptedAllocator) -> None:
    critic = Engine(allocator, model_type="value_model")
    critic.train(1000)
    assert memory.answer() is None
    assert allocator.resets == 0


def test_the_only_process_under_torchrun_has_one(allocator: ScriptedAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(handed_on.RUN_VARIABLE)
    monkeypatch.setenv("WORLD_SIZE", "1")
    engine = Engine(allocator)
    engine.train(1000)
    assert memory.answer().parts()


# It never reaches the training


@pytest.mark.parametrize("broken", ["usage", "reset_peak", "driver"])
def test_an_allocator_that_fails_leaves_the_training_alone(engine: Engine, broken: str) -> None:
    setattr(engine.allocator, broken, lambda: 1 / 0)
    before = engine.module.weight.detach().clone()
    assert engine.train(1000)["metrics"] == {"grad_norm": 1.5}
    assert not torch.equal(engine.module.weight, before)
    assert guard.failures


def test_an_account_that_cannot_be_opened_is_tried_once(
    allocator: ScriptedAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(memory.ALLOCATORS, "cuda", lambda: 1 / 0)
    engine = Engine(allocator)
    for _ in range(3):
        assert engine.train(1000)["metrics"] == {"grad_norm": 1.5}
    assert guard.failures.total() == 1
    assert memory.answer() is None


def test_a_mini_batch_that_fails_raises_and_the_next_one_counts(engine: Engine) -> None:
    engine.fails = True
    with pytest.raises(MemoryError):
        engine.train(5000)
    engine.fails = False
    engine.train(1000)
    assert memory.answer().parts()[Part.ACTIVATIONS] == 1000


# What verl itself logs


@pytest.fixture
def postprocessed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """The metrics of verl's own method, where the device has what the scripted allocator says."""
    device = SimpleNamespace(
        max_memory_allocated=lambda: engine.allocator.max_allocated,
        max_memory_reserved=lambda: engine.allocator.max_reserved,
    )
    monkeypatch.setattr(engine_workers, "get_torch_device", lambda: device)
    training_worker = object.__new__(engine_workers.TrainingWorker)
    training_worker.__dict__.update(engine=engine, device_name="cpu", flops_counter=None)

    def call() -> dict[str, Any]:
        output = {"loss": [0.5], "metrics": {}}
        nothing = {"global_token_num": None, "delta_time": 1.0, "forward_only": False, "images_seqlens": None}
        return get(training_worker._postprocess_output(output, **nothing).cpu(), "metrics")

    return call


def test_verls_own_figures_are_those_since_the_start(
    engine: Engine, postprocessed: Callable[[], dict[str, Any]]
) -> None:
    engine.allocator.take("loading", 7000)
    engine.allocator.give_back("loading")
    highest, reserved = engine.allocator.max_allocated, engine.allocator.max_reserved
    engine.train(1000)
    engine.allocator.reserved = engine.allocator.allocated  # the cache was emptied
    engine.train(1000)
    assert engine.allocator.max_allocated < highest, "the counters were reset"
    assert engine.allocator.max_reserved < reserved
    metrics = postprocessed()
    assert metrics["perf/max_memory_allocated_gb"] == highest / 1024**3
    assert metrics["perf/max_memory_reserved_gb"] == reserved / 1024**3
    assert metrics["loss"] == 0.5


def test_a_peak_since_the_last_update_is_in_verls_figures(
    engine: Engine, postprocessed: Callable[[], dict[str, Any]]
) -> None:
    engine.train(1000)
    engine.allocator.take("a critic's update", 8000)
    assert postprocessed()["perf/max_memory_allocated_gb"] == engine.allocator.max_allocated / 1024**3


def test_a_verl_that_logs_no_memory_stays_without(engine: Engine) -> None:
    """As 0.7.1, where both lines are comments."""
    engine.train(1000)
    output = TensorDict({}, batch_size=[])
    metrics = {"loss": 0.5}
    assign_non_tensor(output, metrics=metrics)
    old = SimpleNamespace(TrainingWorker=type("TrainingWorker", (), {"_postprocess_output": lambda self: output}))
    memory.install_marks(old)  # type: ignore[arg-type]
    assert get(old.TrainingWorker()._postprocess_output(), "metrics") == {"loss": 0.5}
    assert not guard.failures


def test_a_correction_that_fails_leaves_verls_figures(
    engine: Engine, postprocessed: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_memories", lambda: 1 / 0)
    assert postprocessed()["perf/max_memory_allocated_gb"] == engine.allocator.max_allocated / 1024**3
    assert guard.failures.total() == 1
