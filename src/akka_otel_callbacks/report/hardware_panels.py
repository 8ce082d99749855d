"""Panels that runs of both kinds have: speed, memory, GPUs, evaluations and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.report import marks
from akka_otel_callbacks.report.drawing import Line, Stack
from akka_otel_callbacks.report.gpus import placed, short_uuid
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.panel import Chart, Panel

Component = names.MemoryComponent
COMPONENTS = (
    Component.WEIGHTS,
    Component.ADAPTER,
    Component.GRADIENTS,
    Component.OPTIMIZER,
    Component.ACTIVATIONS,
    Component.GENERATION,
    Component.OTHER,
    Component.ALLOCATOR,
    Component.EXTERNAL,
)
"""What fills a device, from the bottom up. What is free lies above all of it."""

GPUS = Panel(
    "gpu",
    "GPU health",
    "Are the devices well. Marks are XIDs, the driver's codes of a fault",
    (
        Chart(
            (Line(names.HW_GPU_UTILIZATION, by=names.ATTR_HW_ID, called=short_uuid),),
            "Time that a kernel ran",
            [marks.xids],
        ),
        Chart((Line(names.HW_TEMPERATURE, by=names.ATTR_HW_ID, called=short_uuid),), "Temperature", [marks.xids]),
        Chart((Line(names.HW_POWER, by=names.ATTR_HW_ID, called=short_uuid),), "Power", [marks.xids]),
        Chart(
            (Line(names.HW_GPU_MEMORY_UTILIZATION, by=names.ATTR_HW_ID, called=short_uuid),),
            "Memory in use",
            [marks.xids],
        ),
    ),
    words=placed,
    also=[names.GPU_XID_CAUSES],
    wide=True,
)


def throughput(tokens: Metric, mfu: Metric) -> Panel:
    return Panel(
        "throughput",
        "Throughput and MFU",
        "How fast is it, and how much of the device's peak does the update reach",
        (Chart((Line(tokens, "tokens per second and device"), Line(mfu, "MFU", right=True))),),
    )


def memory(reserved: Metric, allocated: Metric) -> Panel:
    return Panel(
        "memory",
        "Device memory",
        "What fills the device at the peak of a step",
        (
            Chart(
                (
                    Stack(names.STEP_MEMORY, names.ATTR_MEMORY_COMPONENT, COMPONENTS),
                    Line(reserved, "most reserved so far", quiet=True),
                    Line(allocated, "most allocated so far", quiet=True),
                ),
                limits=memory_limit,
            ),
        ),
    )


def results(evaluation: Metric, timing: Metric, phase: Attribute, save: str) -> Panel:
    """Evaluations and checkpoints, of the kind of run that has these figures of them."""
    saves = Line(timing, "checkpoint", by=phase, only=save, right=True, form="dots")
    return Panel(
        "results",
        "Evaluations and checkpoints",
        "What the held-out sets say, when checkpoints were saved, and how long that took",
        (
            Chart(
                (Line(evaluation, "evaluation", by=names.ATTR_EVAL_DATASET, form="points"), saves),
                marks=[marks.failed_saves],
            ),
        ),
    )


def memory_limit(run: History) -> Iterable[tuple[str, float]]:
    """Bytes of the device, where the parts of its memory are known: all of them together, what is free included."""
    courses = run.courses(names.STEP_MEMORY)
    if any(course.of(names.ATTR_MEMORY_COMPONENT) == Component.FREE for course in courses):
        yield "the device's memory", sum(course.y[-1] for course in courses)
