"""The panels of a reinforcement run, in the order in which one looks at it."""

from __future__ import annotations

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.report import marks
from akka_otel_callbacks.report.drawing import Band, Heat, Line, Means, Stack
from akka_otel_callbacks.report.hardware_panels import GPUS, memory, results, throughput
from akka_otel_callbacks.report.panel import Chart, Panel

TOTAL = {names.ATTR_RL_TERM.name: names.RlTerm.TOTAL}
Phase = names.RlStepPhase

PHASES = (
    Phase.GEN,
    Phase.REWARD,
    Phase.OLD_LOG_PROB,
    Phase.REF,
    Phase.VALUES,
    Phase.ADV,
    Phase.UPDATE_CRITIC,
    Phase.UPDATE_ACTOR,
    Phase.UPDATE_WEIGHTS,
    Phase.PARAM_SYNC,
    Phase.SYNC_ROLLOUT_WEIGHTS,
    Phase.WAIT_FOR_ENOUGH_SAMPLES,
    Phase.SWITCH_WAIT,
    Phase.SWITCH_TO_TRAINER,
    Phase.SWITCH_TO_ROLLOUT,
    Phase.DUMP_ROLLOUT_GENERATIONS,
    Phase.TESTING,
    Phase.SAVE_CHECKPOINT,
)
"""The parts of a step. Whatever else an engine times is a part of one of these, or goes on beside the step, as verl's
`generate_async` does for the next one."""

LEARNING = (
    Panel(
        "reward",
        "Reward",
        "Is it learning? The mean of each step's rollouts, and what each term gives to it",
        (
            Chart(
                (
                    Line(names.RL_STEP_REWARD, "mean"),
                    Band(names.RL_STEP_REWARD_MIN, names.RL_STEP_REWARD_MAX, "lowest to highest"),
                    Line(names.RL_STEP_REWARD_TERM, by=names.ATTR_RL_TERM, without=[names.RlTerm.TOTAL], quiet=True),
                ),
                marks=[marks.attempts],
            ),
        ),
    ),
    Panel(
        "distribution",
        "Reward distribution",
        "Which share of the rollouts got which reward",
        (Chart(heat=Heat(names.RL_ROLLOUT_REWARD, TOTAL)),),
    ),
    Panel(
        "length",
        "Completion length",
        "Do completions grow, and how many are cut off at the maximum",
        (
            Chart(
                (
                    Line(names.RL_STEP_COMPLETION_LENGTH, "mean"),
                    Band(
                        names.RL_STEP_COMPLETION_LENGTH_MIN, names.RL_STEP_COMPLETION_LENGTH_MAX, "shortest to longest"
                    ),
                    Line(names.RL_STEP_COMPLETION_LENGTH_TERMINATED, "mean of those that ended", quiet=True),
                    Line(names.RL_STEP_COMPLETION_CLIPPED_RATIO, "truncated", right=True),
                )
            ),
        ),
    ),
    Panel(
        "entropy",
        "Entropy and KL divergence",
        "Does the policy still explore, and how far is it from the reference model",
        (Chart((Line(names.RL_STEP_ENTROPY, "entropy"), Line(names.RL_STEP_KL, "KL", right=True))),),
    ),
    Panel(
        "groups",
        "Groups without variance",
        "How many prompts teach nothing, because all of their completions got the same reward",
        (
            Chart(
                (
                    Line(names.RL_STEP_FRAC_REWARD_ZERO_STD, "groups without variance"),
                    Line(names.RL_STEP_REWARD_ZERO_RATIO, "rollouts with reward 0", quiet=True),
                    Line(names.RL_STEP_REWARD_STD, "std of the reward", right=True, quiet=True),
                )
            ),
        ),
    ),
    Panel(
        "gradient",
        "Gradient norm and clipping",
        "Are the updates stable. Marks are figures that were NaN or infinite",
        (
            Chart(
                (
                    Line(names.RL_STEP_GRAD_NORM, "gradient norm"),
                    Line(names.RL_STEP_CLIP_RATIO_HIGH, "clipped above", right=True),
                    Line(names.RL_STEP_CLIP_RATIO_LOW, "clipped below", right=True),
                    Line(names.RL_STEP_CLIP_RATIO, "clipped", right=True, unless=names.RL_STEP_CLIP_RATIO_HIGH),
                ),
                marks=[marks.nonfinite],
            ),
        ),
    ),
    Panel(
        "loss",
        "Loss and learning rate",
        "Rewards are normalised within a group, so the level of the loss says little",
        (
            Chart(
                (
                    Line(names.RL_STEP_LOSS, "loss"),
                    Line(names.RL_STEP_POLICY_LOSS, "policy loss", quiet=True),
                    Line(names.RL_STEP_LEARNING_RATE, "learning rate", right=True, quiet=True),
                ),
                marks=[marks.nonfinite],
            ),
        ),
    ),
)
SPEED = (
    Panel(
        "phases",
        "Time of a step by phase",
        "Where does the time go",
        (
            Chart(
                (
                    Stack(names.RL_STEP_TIMING, names.ATTR_RL_STEP_PHASE, PHASES, whole=Phase.STEP),
                    Line(names.RL_IDLE, "idle", by=names.ATTR_RL_ROLE, right=True),
                )
            ),
        ),
    ),
    throughput(names.RL_STEP_THROUGHPUT, names.RL_STEP_MFU),
    memory(names.RL_STEP_MEMORY_MAX_RESERVED, names.RL_STEP_MEMORY_MAX_ALLOCATED),
    Panel(
        "graders",
        "Tools and graders",
        "Do the tools work, and do the graders answer",
        (
            Chart(
                (Means(names.RL_GRADER_DURATION, names.ATTR_RL_TERM, ""),), "Mean time that a term takes for a rollout"
            ),
            Chart(
                (Line(names.RL_GRADER_FAILURES, by=names.ATTR_RL_TERM, and_by=names.ATTR_RL_GRADER_FAILURE_CAUSE),),
                "Calls of graders that failed so far",
            ),
            Chart(
                (
                    Line(names.RL_STEP_TOOL_CALLS, "tool calls per completion"),
                    Line(names.RL_STEP_TOOL_FAILURE_RATIO, "tool calls that failed", right=True),
                ),
                "Tools",
            ),
        ),
    ),
)
RESULTS = results(names.RL_EVAL_REWARD, names.RL_STEP_TIMING, names.ATTR_RL_STEP_PHASE, Phase.SAVE_CHECKPOINT)
PANELS = (*LEARNING, *SPEED, GPUS, RESULTS)
