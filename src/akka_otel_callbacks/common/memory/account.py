"""What held a device's memory at the peak of a training step, in ten parts that add up to the device's memory.

How the parts come about, for one step on one device (all in bytes):

1. A step is cut into phases: an update, and a generation between `begin_generation` and `end_generation`. Each phase
   starts with the allocator's peak counters reset and ends with reading them, so that each has its own peak.
2. The phase with the highest peak `P` of allocated memory is the step's peak. The other kind of phase reports 0.
3. `S` is what was allocated when that phase began: for a generation when it began; for an update when the step began,
   also where the update goes on after a generation.
4. Held at `S`, counted from the tensors: `weights`, `adapter`, `optimizer`, and `gradients` that were already there
   (gradient accumulation across the start of a phase). What `S` has beyond them is `other`, such as the scales of a
   quantized model.
5. Above `S`, up to `P`: for a generation, all of it is `generation`. For an update, the gradients that the optimizer
   step found are `gradients`, and the rest is `activations`. The allocator does not say at which instant the peak
   was, so all gradients are taken to be there, as far as the growth has room for them.
6. `allocator` is the step's peak of reserved memory less `P`.
7. `external` is what the driver saw in use at the end of the step beyond what the allocator had reserved then: the
   CUDA context, libraries, other processes.
8. `free` is what remains of the device's memory.

The optimizer's state is counted when the step begins; state that is created during the step is `activations` in that
one step. Every part takes at most what its predecessors have left over (tensors can lie outside the allocator, and
the driver's figure is of a later instant), so no part is negative and the sum is exact.

Resetting the peak counters changes what `torch.cuda.max_memory_allocated` and `max_memory_reserved` answer to others:
the peak of the latest phase. The marks since the start of the process are kept here, `StepMemory.max_allocated` and
`max_reserved`. An account that was told not to measure `parts` resets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.memory.allocator import Allocator, Usage
from akka_otel_callbacks.common.memory.tensors import Held, TensorCount
from akka_otel_callbacks.common.vocabulary.names import MemoryComponent

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a step, in bytes: what was allocated when the phase began, how much of that were gradients, and the
    most that was allocated in the phase."""

    generation: bool
    start: int
    gradients: int
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Peak:
    """A step's peak on one device, in bytes, before it is divided into parts.

    Attributes:
        phase: the one that held the peak.
        reserved: the most that the allocator had reserved in the step.
        gradients: of all trainable weights, as the optimizer step found them.
        external: in use outside the allocator when the step ended.
        total: the device's memory.
    """

    held: Held
    phase: Phase
    reserved: int
    gradients: int
    external: int
    total: int

    def parts(self) -> dict[str, int]:
        """Bytes by `memory.component`. Their sum is `total`."""
        phase, part = self.phase, MemoryComponent
        peak = min(phase.peak, self.total)
        start = min(phase.start, peak)
        weights, adapter, optimizer, held_gradients, other = _fill(
            start, self.held.weights, self.held.adapter, self.held.optimizer, phase.gradients
        )
        new_gradients = 0 if phase.generation else max(0, self.gradients - phase.gradients)
        grown_gradients, growth = _fill(peak - start, new_gradients)
        allocator, external, free = _fill(self.total - peak, self.reserved - peak, self.external)
        return {
            part.WEIGHTS: weights,
            part.ADAPTER: adapter,
            part.GRADIENTS: held_gradients + grown_gradients,
            part.OPTIMIZER: optimizer,
            part.ACTIVATIONS: 0 if phase.generation else growth,
            part.GENERATION: growth if phase.generation else 0,
            part.OTHER: other,
            part.ALLOCATOR: allocator,
            part.EXTERNAL: external,
            part.FREE: free,
        }


def _fill(room: int, *wanted: int) -> list[int]:
    """What each part gets of the room. The parts take their bytes in turn, and the last number is what remains."""
    shares = []
    for part in wanted:
        share = min(max(part, 0), room)
        shares.append(share)
        room -= share
    return [*shares, room]


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What is published of a step: a few integers, small enough to be sent between processes.

    Attributes:
        max_allocated, max_reserved: the marks since the process started, of the device that held the most.
        peak: None where the parts are not measured.
    """

    max_allocated: int
    max_reserved: int
    peak: Peak | None = None

    def parts(self) -> dict[str, int] | None:
        """Bytes by `memory.component`. Not for the training thread."""
        return self.peak.parts() if self.peak is not None else None


def most_reserved(ranks: Iterable[StepMemory]) -> StepMemory | None:
    """The job's figures, from those of its ranks: the highest marks, and the parts of the rank that reserved the
    most."""
    ranks = list(ranks)
    if not ranks:
        return None
    peaks = [rank.peak for rank in ranks if rank.peak is not None]
    return StepMemory(
        max(rank.max_allocated for rank in ranks),
        max(rank.max_reserved for rank in ranks),
        max(peaks, key=lambda peak: peak.reserved, default=None),
    )


class MemoryAccount:
    """Follows the memory of a training process through its steps.

    Every method is for the training thread: no device synchronisation, at most two reads of the allocator, and one
    pass over the trainable parameters. The tensors are counted when they are first seen, and when they are first seen
    on another device.

    Args:
        allocators: of the devices that the process trains on.
        parts: whether to measure the parts as well; only for one device, whose peak counters it then resets.
    """

    def __init__(self, allocators: Sequence[Allocator], *, parts: bool) -> None:
        self._allocators = tuple(allocators)
        self._max_allocated = self._max_reserved = 0
        self.has_devices = bool(self._allocators)
        self.has_parts = parts and len(self._allocators) == 1
        self._tensors = TensorCount(self._allocators[0].device if self.has_parts else None)
        self._step: Phase | None = None
        self._phase: Phase | None = None
        self._phases: list[Phase] = []
        self._held = Held()
        self._reserved = self._gradients = 0

    def watch(self, models: Iterable[torch.nn.Module], optimizer: Any = None) -> None:
        """Says which models' tensors to count: the trained model first, then models that lie beside it, such as a
        reference."""
        if self.has_parts:
            self._tensors.watch(tuple(models), optimizer)

    @property
    def marks(self) -> tuple[int, int]:
        """The most bytes that were allocated, and reserved, at any reading since the process started."""
        return self._max_allocated, self._max_reserved

    def begin_step(self) -> None:
        if not self.has_parts:
            return
        self._phases, self._reserved, self._gradients = [], 0, 0
        self._step = self._phase = None
        usage = self._read()
        if usage is None:
            return
        self._held = self._tensors.held()
        self._step = self._begin(Phase(False, usage.allocated, self._tensors.gradients()))

    def begin_generation(self) -> None:
        """Ends the update's phase so far. Outside a step, as in an evaluation, it does nothing."""
        usage = self._end_phase()
        if usage is not None:
            self._begin(Phase(True, usage.allocated, self._tensors.gradients()))

    def end_generation(self) -> None:
        self._end_phase()
        if self._step is not None:
            self._begin(self._step)

    def before_optimizer_step(self) -> None:
        """Counts the gradients, which are gone when the step ends. Without this call they are `activations`."""
        self._gradients = self._tensors.gradients()

    def end_step(self) -> StepMemory | None:
        """Ends the step, and returns what to publish of it. None if the process has not used its devices."""
        usage = self._end_phase()
        peak = None
        if usage is not None:
            free, total = self._allocators[0].driver()
            peak = Peak(
                self._held,
                max(self._phases, key=lambda phase: (phase.peak, not phase.generation)),
                self._reserved,
                self._gradients,
                total - free - usage.reserved,
                total,
            )
        else:
            self._read()
        self._step = self._phase = None
        return StepMemory(self._max_allocated, self._max_reserved, peak) if self._max_reserved else None

    def _begin(self, phase: Phase) -> Phase:
        self._allocators[0].reset_peak()
        self._phase = phase
        return phase

    def _end_phase(self) -> Usage | None:
        """Ends the open phase, and returns it with its peak. None if no phase is open."""
        if self._phase is None:
            return None
        usage = self._read()
        if usage is not None:
            phase = self._phase
            self._phases.append(Phase(phase.generation, phase.start, phase.gradients, usage.max_allocated))
            self._reserved = max(self._reserved, usage.max_reserved)
        return usage

    def _read(self) -> Usage | None:
        """Reads every device's counters into the marks, and returns those of the first device."""
        usages = [allocator.usage() for allocator in self._allocators]
        for usage in usages:
            if usage is not None:
                self._max_allocated = max(self._max_allocated, usage.max_allocated)
                self._max_reserved = max(self._max_reserved, usage.max_reserved)
        return usages[0] if usages else None
