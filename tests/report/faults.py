"""Runs with one fault each, and what a page says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from akka_otel_callbacks.common.vocabulary import names
from tests.report.recordings import GPU, record, recording, rl_step, sft_step

STEPS = 60


def with_figures(figures: Callable[[int], dict[str, object]], make: Callable = rl_step) -> Callable[[Path], Path]:
    return lambda folder: record(folder, STEPS, make, figures)


def stalled(folder: Path) -> Path:
    with recording(folder) as made:
        for number in range(1, STEPS + 1):
            made.step(rl_step(number, STEPS))
        made.export()
        made.export(after_s=900)
    return folder


def with_xid(folder: Path, cause: str = names.GpuXidCause.HARDWARE, latest: int = 79) -> Path:
    """A GPU with one XID."""
    counted = {**GPU, names.ATTR_GPU_XID_CAUSE.name: cause}
    with recording(folder) as made:
        made.observed = {
            names.GPU_XID_CAUSES: [(0, counted)],
            names.HW_GPU_UTILIZATION: [(0.8, GPU)],
            names.HW_TEMPERATURE: [(61.0, GPU)],
        }
        for number in range(1, STEPS + 1):
            made.step(rl_step(number, STEPS))
            if number == 40:
                made.observed |= {names.GPU_XID_CAUSES: [(1, counted)], names.GPU_XID_LAST: [(latest, GPU)]}
            if number % 10 == 0:
                made.export()
    return folder


FAULTS: Mapping[str, Callable[[Path], Path]] = {
    "Not finite": with_figures(lambda n: {"loss": math.nan} if n >= 33 else {}),
    "Dead groups": with_figures(lambda n: {"frac_reward_zero_std": min(n / STEPS, 0.9)}),
    "Truncation rising": with_figures(
        lambda n: {"completion_clipped_ratio": 0.02 + 0.6 * n / STEPS, "completion_length": 100.0 + 6 * n}
    ),
    "Entropy collapse": with_figures(lambda n: {"entropy": 0.6 * math.exp(-n / 10)}),
    "Reward at its ceiling": with_figures(
        lambda n: {"reward": min(n / 30, 0.995), "reward_max": 1.0, "reward_min": 0.0, "frac_reward_zero_std": 0.3}
    ),
    "Grader failing": with_figures(lambda n: {"grader_failures": {("accuracy", "timeout"): 4}} if n > 20 else {}),
    "Tools failing": with_figures(lambda n: {"tool_calls": 2.0, "tool_failure_ratio": 0.7}),
    "Input-bound": with_figures(
        lambda n: {"timing_s": {"input": 0.6, "forward_backward": 0.4, "optimizer": 0.05, "step": 0.45}}, sft_step
    ),
    "Generation-bound": with_figures(lambda n: {"timing_s": {"gen": 9.5, "reward": 0.1, "update_actor": 0.3}}),
    "Stalled": stalled,
    "XID": with_xid,
}
"""By the name of the rule that finds it."""
