"""What a step's memory is on the step: one definition for every engine."""

from __future__ import annotations

from akka_otel_callbacks.common.memory.account import StepMemory
from akka_otel_callbacks.common.vocabulary.step import Step


def set_memory(step: Step, memory: StepMemory | None) -> None:
    """Sets the marks and the parts; nothing where the process has no account."""
    if memory is not None:
        step.memory_max_allocated_bytes = memory.max_allocated
        step.memory_max_reserved_bytes = memory.max_reserved
        step.memory_bytes = memory.parts()
