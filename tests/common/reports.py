"""Steps to report: what an engine would leave behind, translated already."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.step import RLStep, Step
from tests.support.points import Point

TERMS = ("accuracy", "format", "judge")
ROLLOUTS = 32


@dataclass
class Report:
    """A capture of a finished step; `seconds` is how long its translation takes."""

    step: Step
    seconds: float = 0.0

    def deliver(self, recorder: Recorder) -> None:
        if self.seconds:
            time.sleep(self.seconds)
        recorder.record(self.step)


@dataclass
class Broken:
    """A capture that cannot be translated."""

    def deliver(self, recorder: Recorder) -> None:
        raise LookupError("no such figure")


def grpo_step(number: int) -> RLStep:
    """Everything that a full GRPO step has: all gauges, 32 rollouts, three terms and the total."""
    shares = {term: [(index * (place + 1) % 11) / 10 for index in range(ROLLOUTS)] for place, term in enumerate(TERMS)}
    shares["total"] = [sum(row) for row in zip(*shares.values(), strict=True)]
    return RLStep(
        number=number,
        duration_s=12.5,
        timing_s={"gen": 8.0, "reward": 0.5, "update_actor": 4.0},
        reward=0.75 + number,
        reward_std=0.25,
        reward_min=-0.5,
        reward_max=2.5,
        eval_reward={"held_out": 0.625},
        epoch=0.5,
        loss=0.015,
        reward_term=dict.fromkeys(shares, 0.5),
        reward_term_std=dict.fromkeys(shares, 0.125),
        reward_zero_ratio=0.0625,
        frac_reward_zero_std=0.25,
        rollouts=ROLLOUTS,
        rollout_reward=shares,
        grader_duration={term: [0.25 * (index + 1) for index in range(ROLLOUTS)] for term in TERMS},
        grader_failures={("judge", "timeout"): 2},
        grader_tokens={("judge", "input"): 640, ("judge", "output"): 96},
        rollout_completion_length=[17 * index + 1 for index in range(ROLLOUTS)],
        completion_length=264.5,
        completion_length_max=528,
        completion_length_min=1,
        completion_length_terminated=240.0,
        completion_clipped_ratio=0.125,
        policy_loss=-0.03,
        grad_norm=1.5,
        learning_rate=1e-6,
        entropy=0.7,
        kl=0.002,
        clip_ratio=0.01,
        clip_ratio_high=0.006,
        clip_ratio_low=0.004,
        tokens=12345,
        throughput=987.6,
        mfu=0.31,
        idle={"trainer": 0.25, "rollout": 0.5},
        tool_calls=1.5,
        tool_failure_ratio=0.125,
        memory_max_allocated_bytes=60 * 2**30,
        memory_max_reserved_bytes=70 * 2**30,
        memory_bytes=dict.fromkeys(
            ["weights", "adapter", "gradients", "optimizer", "activations", "generation", "other", "allocator", "free"],
            8 * 2**30,
        ),
    )


def values(points: list[Point], metric: Metric) -> dict[Any, Any]:
    """The metric's values among `points`, by the attributes' values; a single one without attributes goes by None."""
    return {_key(point.attributes): point.value for point in points if point.name == metric.name}


def _key(attributes: Mapping[str, Any]) -> Any:
    return next(iter(attributes.values()), None) if len(attributes) < 2 else tuple(attributes.values())
