"""What an engine reports: the figures of one step in the shared vocabulary, whatever the engine calls them.

Every field names its metric once; the recorder reads the tables that these declarations make and has no branch of its
own. A field left at None (or empty) is absent: no data point, never a 0. Its type names its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.common.vocabulary.units import (
    Bytes,
    Calls,
    Completions,
    Epochs,
    Failures,
    Loss,
    Nats,
    Norm,
    Rate,
    Reward,
    Rows,
    Seconds,
    Share,
    Steps,
    Tokens,
    TokensPerSecond,
)


def gauge(metric: Metric, by: Attribute | None = None) -> Any:
    """A figure shown until the next step: a number, or with `by` a mapping from the attribute's value to a number. A
    number alone then is the figure of what has no name."""
    return field(default=None, metadata={"metric": metric, "by": by, "role": "gauge"})


def distribution(metric: Metric, by: Attribute | None = None) -> Any:
    """Numbers for a histogram: a number or a list, or with `by` a mapping to lists from the attribute's value."""
    return field(default=None, metadata={"metric": metric, "by": by, "role": "distribution"})


def count(metric: Metric, by: tuple[Attribute, Attribute]) -> Any:
    """What a counter grows by: a mapping to numbers from the values of two attributes."""
    return field(default=None, metadata={"metric": metric, "by": by, "role": "count"})


class StepField(NamedTuple):
    """Where the recorder finds a metric in a report."""

    attribute: str
    metric: Metric
    by: Any
    """The attribute of its points. None without one; for a counter two of them."""


@dataclass(slots=True, kw_only=True)
class RLStep:
    """One step of a reinforcement loop. `number` None makes it an amendment: figures known beside the step itself."""

    counter = names.RL_STEP_COUNT

    number: Steps | None = gauge(names.RL_STEP_NUMBER)
    epoch: Epochs | None = gauge(names.JOB_EPOCH)
    duration_s: Seconds | None = distribution(names.RL_STEP_DURATION)
    timing_s: Mapping[str, Seconds | None] | None = gauge(names.RL_STEP_TIMING, by=names.ATTR_RL_STEP_PHASE)

    reward: Reward | None = gauge(names.RL_STEP_REWARD)
    reward_std: Reward | None = gauge(names.RL_STEP_REWARD_STD)
    reward_min: Reward | None = gauge(names.RL_STEP_REWARD_MIN)
    reward_max: Reward | None = gauge(names.RL_STEP_REWARD_MAX)
    reward_term: Mapping[str, Reward | None] | None = gauge(names.RL_STEP_REWARD_TERM, by=names.ATTR_RL_TERM)
    reward_term_std: Mapping[str, Reward | None] | None = gauge(names.RL_STEP_REWARD_TERM_STD, by=names.ATTR_RL_TERM)
    reward_zero_ratio: Share | None = gauge(names.RL_STEP_REWARD_ZERO_RATIO)
    frac_reward_zero_std: Share | None = gauge(names.RL_STEP_FRAC_REWARD_ZERO_STD)
    rollouts: Completions | None = gauge(names.RL_STEP_ROLLOUTS)
    rollout_reward: Mapping[str, Sequence[Reward]] | None = distribution(names.RL_ROLLOUT_REWARD, by=names.ATTR_RL_TERM)
    """Per term, `total` included: the weighted share of each rollout that the term scored."""
    rollout_completion_length: Sequence[Tokens] | None = distribution(names.RL_ROLLOUT_COMPLETION_LENGTH)
    """Tokens of each completion up to the last one that the model generated."""

    grader_duration: Mapping[str, Sequence[Seconds]] | None = distribution(
        names.RL_GRADER_DURATION, by=names.ATTR_RL_TERM
    )
    """Per term, the seconds that it took for each rollout."""
    grader_failures: Mapping[tuple[str, str], Failures] | None = count(
        names.RL_GRADER_FAILURES, by=(names.ATTR_RL_TERM, names.ATTR_RL_GRADER_FAILURE_CAUSE)
    )
    grader_tokens: Mapping[tuple[str, str], Tokens] | None = count(
        names.RL_GRADER_TOKENS, by=(names.ATTR_RL_TERM, names.ATTR_RL_GRADER_TOKEN_TYPE)
    )

    completion_length: Tokens | None = gauge(names.RL_STEP_COMPLETION_LENGTH)
    completion_length_max: Tokens | None = gauge(names.RL_STEP_COMPLETION_LENGTH_MAX)
    completion_length_min: Tokens | None = gauge(names.RL_STEP_COMPLETION_LENGTH_MIN)
    completion_length_terminated: Tokens | None = gauge(names.RL_STEP_COMPLETION_LENGTH_TERMINATED)
    completion_clipped_ratio: Share | None = gauge(names.RL_STEP_COMPLETION_CLIPPED_RATIO)

    loss: Loss | None = gauge(names.RL_STEP_LOSS)
    policy_loss: Loss | None = gauge(names.RL_STEP_POLICY_LOSS)
    eval_reward: Mapping[str, Reward] | Reward | None = gauge(names.RL_EVAL_REWARD, by=names.ATTR_EVAL_DATASET)
    grad_norm: Norm | None = gauge(names.RL_STEP_GRAD_NORM)
    learning_rate: Rate | None = gauge(names.RL_STEP_LEARNING_RATE)
    entropy: Nats | None = gauge(names.RL_STEP_ENTROPY)
    kl: Nats | None = gauge(names.RL_STEP_KL)
    clip_ratio: Share | None = gauge(names.RL_STEP_CLIP_RATIO)
    clip_ratio_high: Share | None = gauge(names.RL_STEP_CLIP_RATIO_HIGH)
    clip_ratio_low: Share | None = gauge(names.RL_STEP_CLIP_RATIO_LOW)

    tokens: Tokens | None = gauge(names.RL_STEP_TOKENS)
    throughput: TokensPerSecond | None = gauge(names.RL_STEP_THROUGHPUT)
    mfu: Share | None = gauge(names.RL_STEP_MFU)
    idle: Mapping[str, Share | None] | None = gauge(names.RL_IDLE, by=names.ATTR_RL_ROLE)
    tool_calls: Calls | None = gauge(names.RL_STEP_TOOL_CALLS)
    tool_failure_ratio: Share | None = gauge(names.RL_STEP_TOOL_FAILURE_RATIO)

    memory_max_allocated_bytes: Bytes | None = gauge(names.RL_STEP_MEMORY_MAX_ALLOCATED)
    memory_max_reserved_bytes: Bytes | None = gauge(names.RL_STEP_MEMORY_MAX_RESERVED)
    memory_bytes: Mapping[str, Bytes | None] | None = gauge(names.STEP_MEMORY, by=names.ATTR_MEMORY_COMPONENT)


@dataclass(slots=True, kw_only=True)
class SFTStep:
    """One update of a supervised loop. `number` None makes it an amendment: figures known beside the step itself."""

    counter = names.SFT_STEP_COUNT

    number: Steps | None = gauge(names.SFT_STEP_NUMBER)
    epoch: Epochs | None = gauge(names.JOB_EPOCH)
    duration_s: Seconds | None = distribution(names.SFT_STEP_DURATION)
    timing_s: Mapping[str, Seconds | None] | None = gauge(names.SFT_STEP_TIMING, by=names.ATTR_SFT_STEP_PHASE)

    loss: Loss | None = gauge(names.SFT_STEP_LOSS)
    eval_loss: Mapping[str, Loss] | Loss | None = gauge(names.SFT_EVAL_LOSS, by=names.ATTR_EVAL_DATASET)
    grad_norm: Norm | None = gauge(names.SFT_STEP_GRAD_NORM)
    learning_rate: Rate | None = gauge(names.SFT_STEP_LEARNING_RATE)
    token_accuracy: Share | None = gauge(names.SFT_STEP_TOKEN_ACCURACY)

    tokens: Tokens | None = gauge(names.SFT_STEP_TOKENS)
    padding: Share | None = gauge(names.SFT_STEP_PADDING)
    throughput: TokensPerSecond | None = gauge(names.SFT_STEP_THROUGHPUT)
    mfu: Share | None = gauge(names.SFT_STEP_MFU)
    data_rows: Mapping[str, Rows | None] | None = gauge(names.SFT_DATA_ROWS, by=names.ATTR_SFT_DATA_FIT)

    memory_max_allocated_bytes: Bytes | None = gauge(names.SFT_STEP_MEMORY_MAX_ALLOCATED)
    memory_max_reserved_bytes: Bytes | None = gauge(names.SFT_STEP_MEMORY_MAX_RESERVED)
    memory_bytes: Mapping[str, Bytes | None] | None = gauge(names.STEP_MEMORY, by=names.ATTR_MEMORY_COMPONENT)


Step = RLStep | SFTStep


def _sources(step_type: type[Step], role: str) -> tuple[StepField, ...]:
    return tuple(
        StepField(declared.name, declared.metadata["metric"], declared.metadata["by"])
        for declared in fields(step_type)
        if declared.metadata.get("role") == role
    )


GAUGES: Mapping[type[Step], tuple[StepField, ...]] = {kind: _sources(kind, "gauge") for kind in (RLStep, SFTStep)}
DISTRIBUTIONS: Mapping[type[Step], tuple[StepField, ...]] = {
    kind: _sources(kind, "distribution") for kind in (RLStep, SFTStep)
}
COUNTS: Mapping[type[Step], tuple[StepField, ...]] = {kind: _sources(kind, "count") for kind in (RLStep, SFTStep)}
