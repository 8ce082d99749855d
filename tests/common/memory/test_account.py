"""The memory account, against a scripted allocator that knows what every allocation was for."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from akka_otel_callbacks.common.memory.account import (
    Held,
    MemoryAccount,
    Peak,
    Phase,
    StepMemory,
    TensorCount,
    most_reserved,
)
from akka_otel_callbacks.common.memory.allocator import CudaAllocator, Usage
from akka_otel_callbacks.common.vocabulary.names import MemoryComponent as Part
from tests.support.allocator import META, ScriptedAllocator

CPU = torch.device("cpu")
OF_TENSORS = {"weights", "adapter", "gradients", "optimizer", "activations", "generation", "other"}
ALL_PARTS = OF_TENSORS | {"allocator", "external", "free"}


class Absent:
    device = META

    def usage(self) -> None:
        return None

    def reset_peak(self) -> None:
        raise AssertionError("a device that is not used has no peak")

    def driver(self) -> tuple[int, int]:
        raise AssertionError("asking the driver would make a CUDA context")


def parameter(size: int, *, trainable: bool = True, device: torch.device = META) -> nn.Parameter:
    dtype = torch.float32 if trainable else torch.uint8
    return nn.Parameter(torch.zeros(size, dtype=dtype, device=device), trainable)


class Adapted(nn.Module):
    """1,000 bytes of frozen weights, 40 of an adapter, 60 of buffers, as PEFT marks it."""

    peft_config = {"default": object()}  # noqa: RUF012 - a stand-in for PEFT's attribute

    def __init__(self, device: torch.device = META) -> None:
        super().__init__()
        self.base = parameter(1000, trainable=False, device=device)
        self.lora = parameter(10, device=device)
        self.register_buffer("table", torch.zeros(15, device=device))


def optimizer_state(size: int, device: torch.device = META) -> dict[str, torch.Tensor]:
    return {
        "step": torch.zeros(1, device=CPU),
        "exp_avg": torch.zeros(size, dtype=torch.uint8, device=device),
        "exp_avg_sq": torch.zeros(size, dtype=torch.uint8, device=device),
    }


class Optimizer:
    def __init__(self) -> None:
        self.state: dict[nn.Parameter, dict[str, torch.Tensor]] = {}


class Run:
    """A training whose allocations are scripted beside real (meta) tensors of the same sizes."""

    def __init__(self, **machine: int) -> None:
        self.allocator = ScriptedAllocator(**machine)
        self.model, self.optimizer = Adapted(), Optimizer()
        self.account = MemoryAccount([self.allocator], parts=True)
        self.account.watch([self.model], self.optimizer)
        for part, size in ((Part.WEIGHTS, 1060), (Part.ADAPTER, 40), (Part.OTHER, 25)):
            self.allocator.take(part, size)

    def optimizer_step(self) -> None:
        if not self.optimizer.state:
            self.optimizer.state[self.model.lora] = optimizer_state(40)
            self.allocator.take(Part.OPTIMIZER, 80)

    def generate(self, size: int) -> None:
        self.account.begin_generation()
        self.allocator.take(Part.GENERATION, size)
        self.allocator.give_back(Part.GENERATION)
        self.account.end_generation()

    def update(self, activations: int) -> None:
        """One forward and backward pass with its peak when all gradients are there, and the optimizer step."""
        self.model.lora.grad = torch.zeros_like(self.model.lora)
        self.allocator.take(Part.GRADIENTS, 40)
        self.allocator.take(Part.ACTIVATIONS, activations)
        self.allocator.give_back(Part.ACTIVATIONS)
        self.account.before_optimizer_step()
        self.optimizer_step()
        self.model.lora.grad = None
        self.allocator.give_back(Part.GRADIENTS)


def truth(allocator: ScriptedAllocator, at_peak: Counter[str], reserved: int) -> dict[str, int]:
    """The parts at a peak, from the script alone."""
    parts = {part: at_peak[part] for part in ALL_PARTS}
    parts["allocator"] = reserved - sum(at_peak.values())
    parts["external"] = allocator.external
    parts["free"] = allocator.total - reserved - allocator.external
    return parts


@pytest.fixture
def run() -> Run:
    run = Run()
    run.account.begin_step()
    run.update(200)  # creates the optimizer's state
    run.account.end_step()
    return run


def test_peak_in_the_update(run: Run) -> None:
    run.account.begin_step()
    run.generate(300)
    run.update(900)
    at_peak = run.allocator.at_peak
    step = run.account.end_step()

    parts = step.parts()
    assert parts == truth(run.allocator, at_peak, run.allocator.reserved)
    assert parts["activations"] == 900
    assert parts["gradients"] == 40
    assert parts["generation"] == 0
    assert sum(parts.values()) == 10_000


def test_peak_in_the_generation(run: Run) -> None:
    run.account.begin_step()
    run.account.begin_generation()
    run.allocator.take(Part.GENERATION, 2000)
    at_peak = run.allocator.at_peak
    run.allocator.give_back(Part.GENERATION)
    run.account.end_generation()
    run.update(900)
    parts = run.account.end_step().parts()

    assert parts == truth(run.allocator, at_peak, run.allocator.reserved)
    assert parts["generation"] == 2000
    assert parts["activations"] == parts["gradients"] == 0
    assert sum(parts.values()) == 10_000


def test_a_generation_in_the_middle_of_gradient_accumulation_keeps_its_gradients(run: Run) -> None:
    run.account.begin_step()
    run.model.lora.grad = torch.zeros_like(run.model.lora)
    run.allocator.take(Part.GRADIENTS, 40)
    run.generate(2000)
    parts = run.account.end_step().parts()

    assert parts["gradients"] == 40
    assert parts["generation"] == 2000
    assert parts["other"] == 25


def test_gradients_that_a_step_begins_with_are_counted_once(run: Run) -> None:
    run.model.lora.grad = torch.zeros_like(run.model.lora)  # as after zero_grad(set_to_none=False)
    run.allocator.take(Part.GRADIENTS, 40)
    run.account.begin_step()
    run.allocator.take(Part.ACTIVATIONS, 900)
    at_peak = run.allocator.at_peak
    run.account.before_optimizer_step()
    parts = run.account.end_step().parts()
    assert parts == truth(run.allocator, at_peak, run.allocator.reserved)
    assert (parts["gradients"], parts["activations"], parts["other"]) == (40, 900, 25)


def test_the_later_of_two_generations_can_hold_the_peak(run: Run) -> None:
    run.account.begin_step()
    run.generate(100)
    run.generate(3000)
    run.generate(200)
    run.update(50)
    assert run.account.end_step().parts()["generation"] == 3000


def test_rollouts_that_stay_for_the_update_are_activations(run: Run) -> None:
    run.account.begin_step()
    run.generate(100)
    run.allocator.take("rollouts", 150)
    run.update(900)
    parts = run.account.end_step().parts()
    assert parts["activations"] == 900 + 150
    assert parts["other"] == 25


def test_the_first_step_counts_a_state_created_in_it_as_activations() -> None:
    run = Run()
    run.account.begin_step()
    run.update(0)
    first = run.account.end_step().parts()
    assert first["optimizer"] == 0
    assert first["activations"] == 80
    run.account.begin_step()
    run.update(0)
    second = run.account.end_step().parts()
    assert second["optimizer"] == 80
    assert second["activations"] == 0


def test_a_peak_is_of_its_own_step(run: Run) -> None:
    for activations in (5000, 100):
        run.account.begin_step()
        run.update(activations)
        assert run.account.end_step().parts()["activations"] == activations


def test_reserved_but_unused_memory_is_the_allocators(run: Run) -> None:
    run.account.begin_step()
    run.update(900)
    used = run.allocator.max_allocated
    run.allocator.waste(333)
    parts = run.account.end_step().parts()
    assert parts["allocator"] == run.allocator.reserved - used
    assert parts["allocator"] >= 333


def test_the_marks_since_the_start_survive_the_resets(run: Run) -> None:
    run.account.begin_step()
    run.update(4000)
    high = run.account.end_step()
    highest, reserved = run.allocator.max_allocated, run.allocator.reserved
    run.allocator.take("evaluation", 6000)  # between two steps
    run.allocator.give_back("evaluation")
    run.account.begin_step()
    run.update(10)
    low = run.account.end_step()

    assert high.max_allocated == highest
    assert high.max_reserved == reserved
    assert low.max_allocated == 1060 + 40 + 25 + 80 + 6000
    assert low.max_reserved == run.allocator.reserved
    assert run.allocator.max_allocated < low.max_allocated, "the allocator itself has forgotten"


def test_memory_that_loading_the_model_took_is_in_the_marks() -> None:
    run = Run()
    run.allocator.take("loading", 8000)
    run.allocator.give_back("loading")
    run.account.begin_step()
    assert run.account.end_step().max_allocated == 1125 + 8000


def test_several_devices_have_marks_and_no_parts_and_no_reset() -> None:
    devices = [ScriptedAllocator(), ScriptedAllocator()]
    devices[0].take("tensors", 500)
    devices[1].waste(900)
    account = MemoryAccount(devices, parts=True)
    account.watch([Adapted()], Optimizer())
    account.begin_step()
    account.begin_generation()
    account.end_generation()
    account.before_optimizer_step()
    assert account.end_step() == StepMemory(500, 900, None)
    assert account.end_step().parts() is None
    assert [device.resets for device in devices] == [0, 0]


@pytest.mark.parametrize("allocators", [[], [Absent()], [Absent(), Absent()]])
def test_a_process_without_a_device_publishes_nothing(allocators: list[Absent]) -> None:
    account = MemoryAccount(allocators, parts=True)
    account.watch([Adapted()], Optimizer())
    account.begin_step()
    account.begin_generation()
    account.end_generation()
    account.before_optimizer_step()
    assert account.end_step() is None


def test_where_parts_are_not_wanted_the_peak_counters_are_left_alone() -> None:
    allocator = ScriptedAllocator()
    allocator.take("tensors", 500)
    account = MemoryAccount([allocator], parts=False)
    account.watch([Adapted()], Optimizer())
    account.begin_step()
    account.before_optimizer_step()
    assert account.end_step() == StepMemory(500, 500, None)
    assert allocator.resets == 0


def test_counters_that_cannot_be_read_any_more_leave_the_marks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.account.begin_step()
    monkeypatch.setattr(run.allocator, "usage", lambda: None)
    run.generate(300)
    step = run.account.end_step()
    assert step.peak is None
    assert step.max_allocated > 0


def test_without_a_look_at_the_gradients_they_are_activations(run: Run) -> None:
    run.account.begin_step()
    run.allocator.take(Part.GRADIENTS, 40)
    run.allocator.take(Part.ACTIVATIONS, 900)
    parts = run.account.end_step().parts()
    assert (parts["gradients"], parts["activations"]) == (0, 940), "the gradients of the step before are none of it"


def test_a_step_without_a_beginning_has_marks_only(run: Run) -> None:
    step = run.account.end_step()
    assert step.peak is None
    assert step.max_allocated > 0


def test_a_generation_between_steps_opens_nothing(run: Run) -> None:
    resets = run.allocator.resets
    run.generate(5000)
    assert run.allocator.resets == resets
    run.account.begin_step()
    run.update(10)
    assert run.account.end_step().parts()["generation"] == 0


def test_what_another_process_takes_is_external(run: Run) -> None:
    run.account.begin_step()
    run.update(10)
    run.allocator.external = 4321
    assert run.account.end_step().parts()["external"] == 4321


# What the parts are made of


sizes = st.integers(min_value=-1000, max_value=100_000)


@given(
    held=st.builds(Held, sizes, sizes, sizes),
    generation=st.booleans(),
    numbers=st.tuples(sizes, sizes, sizes, sizes, sizes, sizes),
    total=st.integers(min_value=0, max_value=200_000),
)
def test_any_figures_add_up_and_none_is_negative(
    held: Held, generation: bool, numbers: tuple[int, ...], total: int
) -> None:
    start, gradients, peak, reserved, all_gradients, external = numbers
    phase = Phase(generation, max(start, 0), gradients, max(peak, 0))
    parts = Peak(held, phase, reserved, all_gradients, external, total).parts()
    assert set(parts) == ALL_PARTS
    assert sum(parts.values()) == total
    assert min(parts.values()) >= 0


events = st.lists(
    st.tuples(st.sampled_from(["take", "give_back", "generate", "optimize"]), st.integers(0, 400)), max_size=20
)


@given(steps=st.lists(events, min_size=1, max_size=5))
def test_the_peak_of_any_step_is_found(steps: list[list[tuple[str, int]]]) -> None:
    """Against a plain maximum over everything that was ever allocated, kept by the test itself."""
    run = Run(total=100_000)
    highest = run.allocator.allocated
    for step in steps:
        run.account.begin_step()
        peak = run.allocator.allocated
        for event, size in step:
            if event == "generate":
                run.generate(size)
                peak = max(peak, run.allocator.allocated + size)
            elif event == "optimize":
                run.account.before_optimizer_step()
            else:
                size = size if event == "take" else -min(size, run.allocator.held["work"])
                run.allocator.take("work", size)
                peak = max(peak, run.allocator.allocated)
        captured = run.account.end_step()
        parts = captured.parts()
        highest = max(highest, peak)
        assert captured.max_allocated == highest
        assert sum(parts.values()) == 100_000
        assert sum(parts[p] for p in OF_TENSORS) == peak


def test_the_most_reserving_rank_stands_for_the_job() -> None:
    def rank(max_allocated: int, max_reserved: int, reserved: int | None) -> StepMemory:
        peak = None if reserved is None else Peak(Held(), Phase(False, 0, 0, 1), reserved, 0, 0, 100)
        return StepMemory(max_allocated, max_reserved, peak)

    job = most_reserved([rank(5, 50, 30), rank(9, 40, 40), rank(7, 60, None)])
    assert (job.max_allocated, job.max_reserved, job.peak.reserved) == (9, 60, 40)
    assert most_reserved([rank(5, 50, None)]).parts() is None
    assert most_reserved([]) is None


def test_a_capture_travels_between_processes(run: Run) -> None:
    run.account.begin_step()
    run.update(10)
    step = run.account.end_step()
    sent = pickle.dumps(step)
    assert pickle.loads(sent) == step
    assert len(sent) < 1000


# What is counted


def count(*models: nn.Module, optimizer: object = None, device: torch.device = META) -> Held:
    counter = TensorCount(device)
    counter.watch(models, optimizer)
    return counter.held()


def test_a_full_fine_tuning_has_weights_and_no_adapter() -> None:
    model = nn.Linear(10, 10, bias=False, device=META)
    assert count(model) == Held(weights=400)


def test_shared_storages_count_once() -> None:
    tied = nn.ModuleDict({"embedding": nn.Embedding(7, 3, device=CPU), "head": nn.Linear(3, 7, bias=False, device=CPU)})
    tied["head"].weight = nn.Parameter(tied["embedding"].weight.data.view(7, 3))  # another tensor, the same storage
    assert len({id(p) for p in tied.parameters()}) == 2
    assert count(tied, device=CPU) == Held(weights=7 * 3 * 4)
    assert count(tied, tied, device=CPU) == Held(weights=7 * 3 * 4)


def test_packed_weights_count_as_packed() -> None:
    packed = nn.Module()
    packed.weight = nn.Parameter(torch.zeros(500, dtype=torch.uint8, device=META), False)  # 1,000 4-bit weights
    assert count(packed) == Held(weights=500)


class Quantized(torch.Tensor):
    """A tensor made of two others, as torchao's quantized ones are."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, scales: torch.Tensor) -> Quantized:
        return torch.Tensor._make_wrapper_subclass(cls, (1000,), dtype=torch.bfloat16, device=data.device)

    def __init__(self, data: torch.Tensor, scales: torch.Tensor) -> None:
        self.packed, self.scales = data, scales

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["packed", "scales"], None

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return arguments[0]
        raise NotImplementedError(function)


def test_a_tensor_made_of_tensors_counts_with_those() -> None:
    model = nn.Module()
    data, scales = torch.zeros(500, dtype=torch.uint8, device=CPU), torch.zeros(8, device=CPU)
    model.weight = nn.Parameter(Quantized(data, scales), False)
    assert count(model, device=CPU) == Held(weights=500 + 32)


@pytest.fixture
def four_ranks() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    torch.distributed.destroy_process_group()


def test_a_sharded_tensor_counts_with_its_local_shard(four_ranks: None) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (4,))
    model = nn.Module()
    model.weight = nn.Parameter(distribute_tensor(torch.zeros(64, 8), mesh, [Shard(0)]))
    model.weight.grad = distribute_tensor(torch.zeros(64, 8), mesh, [Shard(0)])
    counter = TensorCount(CPU)
    counter.watch((model,), None)
    assert model.weight.numel() == 64 * 8
    assert counter.held() == Held(weights=16 * 8 * 4)
    assert counter.gradients() == 16 * 8 * 4


def test_an_optimizer_state_on_the_host_is_left_out() -> None:
    optimizer = Optimizer()
    optimizer.state[parameter(1)] = optimizer_state(40, device=CPU)
    assert count(optimizer=optimizer) == Held()


def test_a_real_optimizers_state_counts_with_its_moments() -> None:
    model = nn.Linear(6, 5, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    step = 4  # AdamW's step counter is a tensor of one float, here on the counted device
    assert count(model, optimizer=optimizer, device=CPU) == Held(weights=120, optimizer=2 * 120 + step)


def test_nested_states_and_foreign_values_are_walked() -> None:
    optimizer = Optimizer()
    tensor = torch.zeros(5, dtype=torch.uint8, device=META)
    optimizer.state[parameter(1)] = {
        "qmap": [tensor, {"absmax": torch.zeros(3, device=META)}],
        "name": "state1",
        "n": 3,
    }
    assert count(optimizer=optimizer) == Held(optimizer=5 + 12)


def test_a_move_between_devices_is_noticed() -> None:
    model, optimizer = Adapted(device=CPU), Optimizer()
    optimizer.state[model.lora] = optimizer_state(40, device=CPU)
    counter = TensorCount(META)
    counter.watch((model,), optimizer)
    assert counter.held() == Held()
    optimizer.state[model.lora] = optimizer_state(40, device=META)
    assert counter.held() == Held(optimizer=80)
    model.to(META)
    assert counter.held() == Held(weights=1060, adapter=40, optimizer=80)
    optimizer.state = {model.lora: optimizer_state(40, device=CPU)}
    assert counter.held() == Held(weights=1060, adapter=40)


def test_tensors_are_counted_once_not_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    counted: list[int] = []
    original = TensorCount._bytes
    monkeypatch.setattr(TensorCount, "_bytes", lambda self, *rest: counted.append(1) or original(self, *rest))
    for step in range(4):
        run.account.begin_step()
        run.update(10)
        run.account.end_step()
        if step == 1:
            counted.clear()  # weights, gradients and the state that the first step created are known now
    assert counted == []


def test_gradients_are_counted_anew_when_their_number_changes() -> None:
    model = nn.ModuleList([nn.Linear(3, 2, bias=False, device=META), nn.Linear(5, 4, bias=False, device=META)])
    counter = TensorCount(META)
    counter.watch((model,), None)
    assert counter.gradients() == 0
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    assert counter.gradients() == 24
    model[1].weight.grad = torch.zeros_like(model[1].weight)
    assert counter.gradients() == 24 + 80
    model.zero_grad()
    assert counter.gradients() == 0


def test_gradients_in_a_buffer_of_megatron_are_counted_once() -> None:
    """Views of one buffer, beside parameters that have no gradient of their own."""
    model, buffer = nn.ModuleList([nn.Linear(2, 3, bias=False), nn.Linear(2, 3, bias=False)]), torch.zeros(16)
    for offset, parameter in zip((0, 6), model.parameters(), strict=True):
        parameter.main_grad = buffer[offset : offset + 6].view(3, 2)
    counter = TensorCount(CPU)
    counter.watch((model,), None)
    assert counter.gradients() == 16 * 4


def test_a_sparse_gradient_is_no_failure() -> None:
    model = nn.Embedding(10, 3, sparse=True)
    model(torch.tensor([1, 2])).sum().backward()
    counter = TensorCount(CPU)
    counter.watch((model,), None)
    assert counter.gradients() == 0


def test_the_cuda_allocator_reads_torchs_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of torch's counters are meant, without a GPU: the shape is that of `torch.cuda.memory_stats`."""
    pool = {"all": {"current": 3, "peak": 5, "allocated": 90, "freed": 80}}
    stats = {"allocated_bytes": pool, "reserved_bytes": {"all": {"current": 7, "peak": 11}}}
    monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", lambda device: stats)
    assert CudaAllocator(1).usage() == Usage(3, 5, 7, 11)
    assert CudaAllocator(1).device == torch.device("cuda:1")


def test_the_cuda_allocator_before_cuda_is_used() -> None:
    assert not torch.cuda.is_initialized()
    assert CudaAllocator(0).usage() is None
    assert not torch.cuda.is_initialized()
