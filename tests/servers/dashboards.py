"""What the panels give that are more than a series or one aggregation of a series, by dashboard, panel and query."""

from __future__ import annotations

from collections.abc import Mapping

from akka_otel_callbacks.common.vocabulary import names
from tests.servers.expected import (
    Check,
    buckets_of,
    counted,
    earlier,
    gives,
    joined,
    joined_with,
    mean,
    mean_of,
    only,
    quantile_of,
    quotient,
    since_the_last_step,
    states,
    value,
)
from tests.servers.gpus import DCGM_PERCENT
from tests.servers.world import Answer

ON_RAY = "Ray's nodes and vLLM's servers: tests/verl/e2e/test_servers.py"
ON_VERL = "only verl has it: tests/verl/e2e/test_servers.py"
ON_GPU = "the memory of a GPU, which these runs have not: tests/verl/e2e/test_servers.py"
NO_GPU = "the memory of a GPU, which a supervised run of these tests has not"
HEALTHY = "nothing is wrong with this run"
TOOLS = "no tools in this run: tests/verl/e2e/test_servers.py"

NO_RESULT: Mapping[str, str] = {
    "fleet.json: Reinforcement runs (H)": HEALTHY,
    "fleet.json: Devices in use (A)": "trainings on a CPU have no accelerators to count",
    "gpus.json: Utilization, as Ray measured it (A)": ON_RAY,
    "gpus.json: vLLM's cache (A)": ON_RAY,
    "gpus.json: vLLM's requests (A)": ON_RAY,
    "gpus.json: vLLM's requests (B)": ON_RAY,
    "rl.json: Not a number (A)": HEALTHY,
    "rl.json: Loss (B)": ON_VERL,
    "rl.json: Tool calls (A)": TOOLS,
    "rl.json: Failed tool calls (A)": TOOLS,
    "rl.json: Waiting (A)": "trainer and rollout take turns on the same device",
    "rl.json: Memory at a step's peak (A)": ON_GPU,
    "rl.json: Highest memory so far (A)": ON_GPU,
    "rl.json: Highest memory so far (B)": ON_GPU,
    "sft.json: Memory at a step's peak (A)": NO_GPU,
    "sft.json: Highest memory so far (A)": NO_GPU,
    "sft.json: Highest memory so far (B)": NO_GPU,
}
"""Queries without a result here, and why."""

FIRE_AT_ONCE = {"AkkaLossNotFinite", "AkkaXidOfTheHardware", "AkkaGpuRepairPending"}
"""Alerts on the supervised run that do not wait. Others fire, too, where the machine is slow."""


def those_that_fire(answer: Answer) -> None:
    assert {sample.labels["alertname"] for sample in answer.now} >= FIRE_AT_ONCE
    assert {sample.labels["akka_optimize_training_run_id"] for sample in answer.now} == {"sft"}


def how_many_fire(answer: Answer) -> None:
    (sample,) = answer.now
    assert sample.value >= len(FIRE_AT_ONCE)
    assert sample.labels["akka_optimize_training_run_id"] == "sft"


TERM, CAUSE, TOKENS = names.ATTR_RL_TERM, names.ATTR_RL_GRADER_FAILURE_CAUSE, names.ATTR_RL_GRADER_TOKEN_TYPE
PHASE, OUTCOME = names.ATTR_RUN_PHASE, names.ATTR_RUN_OUTCOME
DURATION, FAILURES = names.RL_GRADER_DURATION, names.RL_GRADER_FAILURES
HOUR_S = 3600.0

CHECKS: Mapping[str, Check] = {
    "fleet.json: Runs that report (A)": gives(lambda _: [2]),
    "fleet.json: Waiting for the first step (A)": only(1, 2),
    "fleet.json: Evaluating or saving (A)": only(1, 2),
    "fleet.json: Alerts (A)": those_that_fire,
    "fleet.json: Reinforcement runs (B)": gives(lambda _: [4]),
    "fleet.json: Reinforcement runs (C)": since_the_last_step(names.RL_STEP_COUNT, "grpo"),
    "fleet.json: Reinforcement runs (D)": gives(lambda answer: [mean(answer, names.RL_STEP_DURATION)]),
    "fleet.json: Reinforcement runs (F)": earlier(names.RL_STEP_REWARD, "grpo", HOUR_S),
    "fleet.json: Supervised runs (B)": gives(lambda _: [4]),
    "fleet.json: Supervised runs (C)": since_the_last_step(names.SFT_STEP_COUNT, "sft"),
    "fleet.json: Supervised runs (D)": gives(lambda answer: [mean(answer, names.SFT_STEP_DURATION)]),
    "fleet.json: Supervised runs (F)": earlier(names.SFT_STEP_LOSS, "sft", HOUR_S),
    "fleet.json: Supervised runs (H)": how_many_fire,
    "fleet.json: Model FLOPs utilization (A)": gives(
        lambda answer: [value(answer, names.RL_STEP_MFU), value(answer, names.SFT_STEP_MFU)]
    ),
    "fleet.json: Throughput per device (A)": gives(
        lambda answer: [value(answer, names.RL_STEP_THROUGHPUT), value(answer, names.SFT_STEP_THROUGHPUT)]
    ),
    "fleet.json: Runs by phase of life (A)": gives(lambda _: [1, 1]),
    "gpus.json: Utilization, as the run measured it (A)": joined(names.HW_GPU_UTILIZATION),
    "gpus.json: Utilization, as DCGM measured it (A)": joined_with(DCGM_PERCENT),
    "gpus.json: Memory in use (A)": joined(names.HW_GPU_MEMORY_USAGE),
    "gpus.json: Memory in use, of what there is (A)": joined(names.HW_GPU_MEMORY_UTILIZATION),
    "gpus.json: Time that the memory was read or written (A)": joined(names.GPU_MEMORY_ACTIVITY),
    "gpus.json: State (A)": states,
    "gpus.json: Energy (A)": gives(lambda _: [0, 0]),
    "gpus.json: Temperature (A)": joined(names.HW_TEMPERATURE, matchers='hw_sensor_location="gpu"'),
    "gpus.json: Power (A)": joined(names.HW_POWER),
    "gpus.json: Clocks held down, by reason (A)": gives(lambda _: [1]),
    "gpus.json: Clocks held down, by reason (B)": gives(lambda _: [1]),
    "gpus.json: Clocks held down, by reason (C)": gives(lambda _: [1]),
    "graders.json: Failed calls (A)": counted(FAILURES, TERM, CAUSE),
    "graders.json: Share of calls that fail (A)": quotient((FAILURES, ""), (DURATION, "_count"), TERM),
    "graders.json: Mean time to score a rollout (A)": mean_of(DURATION, TERM),
    "graders.json: Time that 95 % stay below (A)": quantile_of(DURATION),
    "graders.json: Calls (A)": counted(DURATION, TERM, part="_count"),
    "graders.json: Time of a rollout's score (A)": buckets_of(DURATION),
    "graders.json: Share of a step that rewards take (A)": gives(
        lambda answer: [
            value(answer, names.RL_STEP_TIMING, matchers='akka_optimize_training_rl_step_phase="reward"')
            / mean(answer, names.RL_STEP_DURATION)
        ]
    ),
    "graders.json: Tokens (A)": counted(names.RL_GRADER_TOKENS, TERM, TOKENS),
    "rl.json: Time since the last step (A)": since_the_last_step(names.RL_STEP_COUNT, "grpo"),
    "rl.json: Usual duration of a step (A)": gives(lambda answer: [mean(answer, names.RL_STEP_DURATION)]),
    "rl.json: Time left (A)": gives(lambda _: [0]),
    "rl.json: Meanwhile (A)": only(1),
    "rl.json: Reward of each rollout (A)": buckets_of(
        names.RL_ROLLOUT_REWARD, 'akka_optimize_training_rl_term="total"'
    ),
    "rl.json: Negative rewards (A)": counted(names.RL_ROLLOUT_REWARD_NEGATIVE, TERM),
    "rl.json: Failures of graders (A)": counted(FAILURES, TERM, CAUSE),
    "rl.json: Completion length by percentile (A)": quantile_of(names.RL_ROLLOUT_COMPLETION_LENGTH),
    "rl.json: Completion length by percentile (B)": quantile_of(names.RL_ROLLOUT_COMPLETION_LENGTH),
    "rl.json: Duration of a step (A)": mean_of(names.RL_STEP_DURATION),
    "rl.json: Checkpoint operations (A)": mean_of(
        names.CHECKPOINT_OPERATION_DURATION, names.ATTR_CHECKPOINT_OPERATION, names.ATTR_CHECKPOINT_OUTCOME
    ),
    "service.json: Devices held, of those declared (A)": gives(lambda _: [4 / 8]),
    "service.json: Share of the quota that is held (A)": gives(lambda _: [4 / 8, 0]),
    "service.json: GPU time (A)": counted(names.GPU_TIME, names.ATTR_PROJECT),
    "service.json: Runs by phase (A)": gives(lambda _: [1, 1]),
    "service.json: Time in a phase (A)": mean_of(names.RUN_PHASE_DURATION, PHASE),
    "service.json: Runs that entered a phase (A)": counted(names.RUN_PHASE_ENTERED, PHASE, window_s=HOUR_S, rate=False),
    "service.json: Runs that ended (A)": counted(
        names.RUN_DURATION, OUTCOME, part="_count", window_s=HOUR_S, rate=False
    ),
    "service.json: Runs that failed, by phase (A)": counted(names.RUN_FAILURES, PHASE, window_s=HOUR_S, rate=False),
    "service.json: Time of pipeline stages (A)": mean_of(
        names.PIPELINE_STAGE_DURATION, names.ATTR_PIPELINE_STAGE_TYPE, names.ATTR_PIPELINE_STAGE_OUTCOME
    ),
    "service.json: Operations (A)": counted(
        names.SERVICE_OPERATIONS, names.ATTR_SERVICE_OPERATION, names.ATTR_SERVICE_OUTCOME
    ),
    "service.json: Time of operations (A)": mean_of(
        names.SERVICE_OPERATION_DURATION, names.ATTR_SERVICE_OPERATION, names.ATTR_SERVICE_OUTCOME
    ),
    "sft.json: Time since the last step (A)": since_the_last_step(names.SFT_STEP_COUNT, "sft"),
    "sft.json: Usual duration of a step (A)": gives(lambda answer: [mean(answer, names.SFT_STEP_DURATION)]),
    "sft.json: Time left (A)": gives(lambda _: [0]),
    "sft.json: Meanwhile (A)": only(1),
    "sft.json: Not a number (A)": gives(lambda _: [1]),
    "sft.json: Duration of a step (A)": mean_of(names.SFT_STEP_DURATION),
}
