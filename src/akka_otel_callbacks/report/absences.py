"""Why a figure that a page would show is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.report.history import History

NO_STEP = "the run has not completed a step"
NO_GPU = "no NVIDIA GPU could be read where the run's processes ran"
NO_ACCELERATOR = "the run had no accelerator"
NOT_SCORED = "no rollout had a reward that is a number"
NOT_SAID = "the engine did not report it in any step"
NOT_LOGGED = "the log that the run was read from does not have it"

REASONS: Mapping[Metric, str] = {
    names.RL_STEP_REWARD: NOT_SCORED,
    names.RL_STEP_REWARD_MIN: NOT_SCORED,
    names.RL_STEP_REWARD_MAX: NOT_SCORED,
    names.RL_STEP_REWARD_STD: NOT_SCORED,
    names.RL_STEP_REWARD_TERM: "the reward has no terms",
    names.RL_STEP_REWARD_ZERO_RATIO: NOT_SCORED,
    names.RL_ROLLOUT_REWARD: NOT_SCORED,
    names.RL_STEP_COMPLETION_LENGTH_TERMINATED: "no completion ended by itself, or the engine does not tell",
    names.RL_STEP_ENTROPY: "the engine did not compute it in this run",
    names.RL_STEP_KL: "the run has no KL penalty",
    names.RL_STEP_FRAC_REWARD_ZERO_STD: "no prompt had several scored completions",
    names.RL_STEP_CLIP_RATIO: "the run's loss does not clip, or does not say how much",
    names.RL_STEP_CLIP_RATIO_HIGH: "the run's loss does not clip, or does not say on which side",
    names.RL_STEP_CLIP_RATIO_LOW: "the run's loss does not clip, or does not say on which side",
    names.RL_STEP_POLICY_LOSS: "the engine reports it only beside an entropy bonus or a KL loss",
    names.RL_IDLE: "trainer and rollout share their devices and take turns, or the engine does not measure waiting",
    names.RL_STEP_MFU: "the peak of the device or the FLOPs of the architecture are not known",
    names.SFT_STEP_MFU: "the peak of the device or the FLOPs of the architecture are not known",
    names.STEP_MEMORY: "the run had no accelerator, or a process saw several of them",
    names.RL_STEP_MEMORY_MAX_ALLOCATED: NO_ACCELERATOR,
    names.RL_STEP_MEMORY_MAX_RESERVED: NO_ACCELERATOR,
    names.SFT_STEP_MEMORY_MAX_ALLOCATED: NO_ACCELERATOR,
    names.SFT_STEP_MEMORY_MAX_RESERVED: NO_ACCELERATOR,
    names.RL_GRADER_DURATION: "the engine does not time its reward terms, or there are none",
    names.RL_GRADER_FAILURES: "no term is a grader that tells its failures, as `graded` and `Judge` do",
    names.RL_STEP_TOOL_CALLS: "the run declares no tools",
    names.RL_STEP_TOOL_FAILURE_RATIO: "the run declares no tools, or called none",
    names.RL_EVAL_REWARD: "the run made no evaluation",
    names.SFT_EVAL_LOSS: "the run made no evaluation",
    names.SFT_STEP_TOKEN_ACCURACY: "the engine does not compute it",
    names.SFT_STEP_PADDING: "the batches are packed, or the engine does not tell",
    names.SFT_DATA_ROWS: "the engine does not count rows, or the data is streamed",
    names.GPU_XID_CAUSES: "no GPU could be read, or NVML does not deliver its events",
    names.HW_GPU_UTILIZATION: NO_GPU,
    names.HW_TEMPERATURE: NO_GPU,
    names.HW_POWER: NO_GPU,
    names.HW_GPU_MEMORY_UTILIZATION: NO_GPU,
}
OF_HARDWARE = {
    names.GPU_XID_CAUSES,
    names.HW_GPU_UTILIZATION,
    names.HW_TEMPERATURE,
    names.HW_POWER,
    names.HW_GPU_MEMORY_UTILIZATION,
}


class Absence(NamedTuple):
    metric: Metric
    reason: str


def absences(run: History, metrics: Sequence[Metric]) -> Iterator[Absence]:
    """Those of the metrics that the run does not have, each with its reason, as far as the run's figures tell it."""
    for metric in dict.fromkeys(metrics):
        if not run.courses(metric) and not run.totals(metric):
            yield Absence(metric, _reason(metric, run))


def _reason(metric: Metric, run: History) -> str:
    if run.newest.is_replayed:  # the run itself may have had it
        return NOT_LOGGED
    return REASONS.get(metric, NOT_SAID) if run.steps or metric in OF_HARDWARE else NO_STEP
