"""The panels of a supervised run, in the order in which one looks at it."""

from __future__ import annotations

from collections.abc import Iterable

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.report import marks
from akka_otel_callbacks.report.drawing import Line, Stack
from akka_otel_callbacks.report.hardware_panels import GPUS, memory, results, throughput
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.panel import Chart, Panel

Phase = names.SftStepPhase
PHASES = (Phase.INPUT, Phase.FORWARD_BACKWARD, Phase.OPTIMIZER)
"""The parts of a step, its input included."""


def data_rows(run: History) -> Iterable[str]:
    """How many training rows fit, were cut or were left out."""
    rows = {course.of(names.ATTR_SFT_DATA_FIT): course.y[-1] for course in run.courses(names.SFT_DATA_ROWS)}
    total = rows.pop(names.SftDataFit.TOTAL, None)
    if total:
        parts = [f"{count:,.0f} {fit} ({count / total:.0%})" for fit, count in rows.items()]
        yield f"{total:,.0f} training rows" + (f": {', '.join(parts)}" if parts else "")


LEARNING = (
    Panel(
        "loss",
        "Loss",
        "Is it learning, and does what it learns hold on the held-out split",
        (
            Chart(
                (
                    Line(names.SFT_STEP_LOSS, "training"),
                    Line(names.SFT_EVAL_LOSS, "held-out", by=names.ATTR_EVAL_DATASET, form="points"),
                    Line(names.SFT_STEP_LEARNING_RATE, "learning rate", right=True, quiet=True),
                ),
                marks=[marks.nonfinite, marks.attempts],
            ),
        ),
    ),
    Panel(
        "accuracy",
        "Token accuracy",
        "How many of the tokens were predicted right",
        (Chart((Line(names.SFT_STEP_TOKEN_ACCURACY, "right"),)),),
    ),
    Panel(
        "data",
        "Padding and data fit",
        "How much of the batches is padding, and how many rows were cut",
        (
            Chart(
                (Line(names.SFT_STEP_PADDING, "padding"), Line(names.SFT_STEP_TOKENS, "tokens", right=True, quiet=True))
            ),
        ),
        words=data_rows,
        also=[names.SFT_DATA_ROWS],
    ),
    Panel(
        "gradient",
        "Gradient norm",
        "Are the updates stable. Marks are figures that were NaN or infinite",
        (Chart((Line(names.SFT_STEP_GRAD_NORM, "gradient norm"),), marks=[marks.nonfinite]),),
    ),
)
SPEED = (
    Panel(
        "phases",
        "Time of a step by phase",
        "Where does the time go",
        (Chart((Stack(names.SFT_STEP_TIMING, names.ATTR_SFT_STEP_PHASE, PHASES),)),),
    ),
    throughput(names.SFT_STEP_THROUGHPUT, names.SFT_STEP_MFU),
    memory(names.SFT_STEP_MEMORY_MAX_RESERVED, names.SFT_STEP_MEMORY_MAX_ALLOCATED),
)
RESULTS = results(names.SFT_EVAL_LOSS, names.SFT_STEP_TIMING, names.ATTR_SFT_STEP_PHASE, Phase.SAVE_CHECKPOINT)
PANELS = (*LEARNING, *SPEED, GPUS, RESULTS)
