"""What fills the device of each worker that trains the policy. The worker measures it, and the driver asks for it.

Every mini-batch, one call of `BaseEngine.train_batch`, is a step of the account: verl has put offloaded weights back on
the device by then. What the worker does besides, such as log probabilities or the update of a critic, counts in the
marks since the start of the process only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.patching.calls import Call, after, around, before, is_hooked
from akka_otel_callbacks.common.run import handed_on
from akka_otel_callbacks.verl.state import STATE

if TYPE_CHECKING:
    from akka_otel_callbacks.common.memory.account import Peak, StepMemory
    from akka_otel_callbacks.common.memory.allocator import Allocator


def _of_current_cuda_device() -> Allocator:
    import torch

    from akka_otel_callbacks.common.memory.allocator import CudaAllocator

    return CudaAllocator(torch.cuda.current_device())


ALLOCATORS: dict[str, Callable[[], Allocator]] = {"cuda": _of_current_cuda_device}
"""The memory of the device that this process trains on, by verl's name for the kind. Other kinds have no account."""
CRITIC = "value_model"
"""verl's word for the one kind of model that trains and is no policy."""
GIB = 1024**3
VERLS_MARKS = ("perf/max_memory_allocated_gb", "perf/max_memory_reserved_gb")
"""The metrics that verl reads from the peak counters which the account resets: allocated, reserved."""


def install(engine_base: ModuleType) -> None:
    around(engine_base.BaseEngine, "train_batch", _measure)


def install_marks(engine_workers: ModuleType) -> None:
    """Keeps verl's own figures of memory true. Without it there is no account."""
    after(engine_workers.TrainingWorker, "_postprocess_output", _correct_marks)


def answer(actor: Any = None) -> StepMemory | None:
    """What the mini-batches since the last answer held. None in a process that has no account. Where there was no
    mini-batch since, it is the marks alone. The driver has Ray call it in the worker."""
    from akka_otel_callbacks.common.memory.account import most_reserved

    return most_reserved(found for memory in _memories() if (found := memory.take()) is not None)


class EngineMemory:
    """The account of one engine's mini-batches.

    Args:
        allocator: of the device that the engine trains on.
    """

    def __init__(self, allocator: Allocator) -> None:
        # Not every process that loads the plugin needs it.
        from akka_otel_callbacks.common.memory.account import MemoryAccount

        self._account = MemoryAccount([allocator], parts=True)
        self._module: Any = None
        self._latest: StepMemory | None = None

    @property
    def marks(self) -> tuple[int, int]:
        """Bytes allocated and reserved at most since the process started, as of the latest reset of the counters."""
        return self._account.marks

    def begin(self, engine: Any) -> None:
        if self._module is not engine.module:  # a new one after another initialization; the old one must not be kept
            self._module = engine.module
            self._account.watch(_modules(engine.module), _as_one(engine.optimizer))
        self._account.begin_step()

    def before_optimizer_step(self) -> None:
        self._account.before_optimizer_step()

    def end(self) -> None:
        ended = self._account.end_step()
        if ended is not None:
            earlier = self._latest.peak if self._latest is not None else None
            self._latest = replace(ended, peak=_higher(earlier, ended.peak))

    def take(self) -> StepMemory | None:
        """What is known since it was last taken. None before the first mini-batch."""
        taken = self._latest
        if taken is not None:
            self._latest = replace(taken, peak=None)
        return taken


class Optimizers:
    """Several optimizers as one: Megatron chains them, torchtitan has one for each part of the model."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = optimizers

    @property
    def state(self) -> dict[Any, Any]:
        return {parameter: state for optimizer in self._optimizers for parameter, state in optimizer.state.items()}


def _memories() -> list[EngineMemory]:
    return [memory for memory in list(STATE.engine_memories.values()) if memory is not None]


def _measure(train_batch: Call) -> Iterator[None]:
    memory = _memory_of(train_batch.owner)
    if memory is None:
        return
    memory.begin(train_batch.owner)
    yield
    if train_batch.error is None:
        memory.end()


def _count_gradients(optimizer_step: Call) -> None:
    memory = STATE.engine_memories.get(optimizer_step.owner)
    if memory is not None:
        memory.before_optimizer_step()


def _correct_marks(postprocess: Call) -> None:
    """Other workers of the process, such as a critic's, read the same counters. Not every version logs them."""
    memories = _memories()
    if not memories:
        return
    from verl.utils.tensordict_utils import get

    metrics = get(postprocess.result, "metrics")
    for memory in memories:
        for key, mark in zip(VERLS_MARKS, memory.marks, strict=True):
            if key in metrics:
                metrics[key] = max(metrics[key], mark / GIB)


def _memory_of(engine: Any) -> EngineMemory | None:
    if engine not in STATE.engine_memories:
        STATE.engine_memories[engine] = None  # one that fails to open has none
        STATE.engine_memories[engine] = _opened(engine)
    return STATE.engine_memories[engine]


def _opened(engine: Any) -> EngineMemory | None:
    from verl.utils.device import get_device_name

    allocator = ALLOCATORS.get(get_device_name())
    trains_policy = getattr(engine.model_config, "model_type", CRITIC) != CRITIC
    if allocator is None or not (trains_policy and _verls_marks_stay_true() and _is_heard(os.environ)):
        return None
    before(type(engine), "optimizer_step", _count_gradients)
    return EngineMemory(allocator())


def _verls_marks_stay_true() -> bool:
    workers = sys.modules.get("verl.workers.engine_workers")
    return is_hooked(getattr(workers, "TrainingWorker", None), "_postprocess_output", _correct_marks)


def _is_heard(environ: Mapping[str, str]) -> bool:
    """Whether somebody asks for the account: the job's driver on Ray, or the process itself where it trains alone.
    Under torchrun with several processes nobody sees them all."""
    return STATE.worker is not None and (handed_on.is_active(environ) or environ.get("WORLD_SIZE") == "1")


def _higher(earlier: Peak | None, later: Peak | None) -> Peak | None:
    """The peak of both mini-batches together: the higher one's parts, beside the most that was reserved in either and
    what lay outside the allocator at the end."""
    if earlier is None or later is None:
        return earlier or later
    higher = max(later, earlier, key=lambda peak: peak.phase.peak)
    return replace(higher, reserved=max(earlier.reserved, later.reserved), external=later.external)


def _modules(module: Any) -> Iterable[Any]:
    """Megatron and torchtitan have a list of parts."""
    return module if isinstance(module, (list, tuple)) else [module]


def _as_one(optimizer: Any) -> Any:
    several = getattr(optimizer, "chained_optimizers", None) or getattr(optimizer, "optimizers", None)
    return Optimizers(several) if several else optimizer
