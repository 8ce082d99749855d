"""verl's log keys, from its first release to 0.9, and the shared figure that each one is."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.log_keys import LogKey, StepT, fill
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.verl.driver.per_token import ENTROPY as ENTROPY_PER_TOKEN
from akka_otel_callbacks.verl.driver.per_token import KL as KL_PER_TOKEN
from akka_otel_callbacks.verl.worker.clip_ratio import CLIPPED_HIGH

Logged = Mapping[str, Any]
"""What one call of `Tracking.log` is given. A value may be a tensor, which only the translator's thread reads."""
Row = Mapping[str, float]
"""The numbers of a row, by verl's key."""


@dataclass(frozen=True, slots=True)
class Key(LogKey):
    """A key of verl's log: which versions log it, and in what scale.

    Attributes:
        since, until: the first and the last version that logs it. None: still does.
        scale: what the value is multiplied with.
    """

    since: str = "0.4"
    until: str | None = None
    scale: float = 1.0


RL_STEP_KEY = "training/global_step"
SFT_STEP_KEY = "train/loss"
"""A row with this key completes a step. verl logs other rows under the same step number: validations, rollout
servers."""

RL_KEYS = (
    Key("timing_s/step", "duration_s"),
    Key("critic/score/mean", "reward"),  # before a KL penalty, unlike critic/rewards
    Key("response_length/mean", "completion_length"),
    Key("response_length/max", "completion_length_max"),
    Key("response_length/min", "completion_length_min"),
    Key("training/epoch", "epoch"),
    Key("actor/loss", "loss", since="0.7"),
    Key("actor/pg_loss", "policy_loss"),  # without entropy and KL terms, unlike actor/loss
    Key("actor/grad_norm", "grad_norm"),
    Key("actor/lr", "learning_rate"),
    Key("actor/lr(1e-4)", "learning_rate", since="0.1", until="0.1", scale=1e-4),
    Key(ENTROPY_PER_TOKEN, "entropy", since="0.7"),  # of the update; ours, as the next
    Key("actor/entropy", "entropy"),
    Key("actor/entropy_loss", "entropy", since="0.7"),  # the same mean, of the update; up to 0.3 too; may be alone
    Key(KL_PER_TOKEN, "kl", since="0.7"),
    Key("actor/kl_loss", "kl"),  # to the reference model, unlike actor/ppo_kl and rollout_corr/kl
    Key("actor/reward_kl_penalty", "kl"),
    Key("critic/kl", "kl", since="0.1", until="0.3"),  # the same under its early name
    Key("actor/pg_clipfrac", "clip_ratio"),  # actor/pg_clipfrac_lower is the dual clip's bound, no side of it
    Key("perf/total_num_tokens", "tokens"),
    Key("perf/throughput", "throughput"),
    Key("perf/mfu/actor", "mfu"),  # verl's own estimate
)
SFT_KEYS = (
    Key("train/loss", "loss"),
    Key("val/loss", "eval_loss"),
    Key("train/grad_norm", "grad_norm", since="0.6"),
    Key("train/lr", "learning_rate", since="0.6"),
    Key("train/lr(1e-3)", "learning_rate", until="0.6", scale=1e-3),
    Key("train/time(s)", "duration_s", since="0.6", until="0.6"),
    Key("train/global_tokens", "tokens", since="0.6"),
    Key("train/mfu", "mfu", since="0.6"),
)

TIMING, EARLY_TIMING = "timing_s/", "timing/"
"""Before a phase's name. 0.1 wrote no unit, and its times are seconds, too."""
EVAL_REWARD = re.compile(r"val-(?:core|aux)/(?P<source>.+)/reward/mean@\d+|val/test_score/(?P<early_source>.+)")
"""The main figure of a data source is `core`: its accuracy if the reward function tells one, otherwise its reward. Up
to 0.3 a source had its mean reward alone."""
PHASE_ALIASES: Mapping[str, str] = {"timing_s/param_sync": names.RlStepPhase.PARAM_SYNC}
"""`fully_async` writes the prefix twice."""


def row_of(logged: Logged) -> dict[str, float]:
    """The numbers that a call logs. Anything else is left out. Reading them may wait for a device."""
    return {key: value for key, raw in logged.items() if isinstance(key, str) and (value := number(raw)) is not None}


def rl_step(row: Row, unusable: Container[str] = ()) -> RLStep:
    """The figures of a row of a reinforcement trainer.

    Args:
        row: of one or several calls.
        unusable: keys that do not say what they are named for in this run.
    """
    step = _fill(RLStep(timing_s=phases(row)), (key for key in RL_KEYS if key.key not in unusable), row)
    step.eval_reward = eval_rewards(row) or None
    step.clip_ratio_high, step.clip_ratio_low = clip_sides(row) if step.clip_ratio is not None else (None, None)
    return step


def sft_step(row: Row) -> SFTStep:
    """The figures of a row of a supervised trainer. verl's MFU of 0 is an unknown device or architecture."""
    step = _fill(SFTStep(), SFT_KEYS, row)
    step.mfu = step.mfu or None
    return step


def phases(row: Row) -> dict[str, float]:
    """Every phase that verl timed, in seconds. Names with a further `/` are left out: they are figures of single
    rollouts, and some are no seconds at all."""
    found = {}
    for key, value in row.items():
        if key.startswith((TIMING, EARLY_TIMING)):
            phase = key.partition("/")[2]
            name = PHASE_ALIASES.get(phase, phase)
            if name and "/" not in name:
                found[name] = value
    return found


def eval_rewards(row: Row) -> dict[str, float]:
    """The mean reward of a validation by the prompts' data source. It is absent for a source whose prompts have
    different numbers of completions: verl then takes a mean for each number, and none of all."""
    found: dict[str, list[float]] = {}
    for key, value in row.items():
        if (match := EVAL_REWARD.fullmatch(key)) is not None:
            found.setdefault(match["source"] or match["early_source"], []).append(value)
    return {source: rewards[0] for source, rewards in found.items() if len(rewards) == 1}


def clip_sides(row: Row) -> tuple[float | None, float | None]:
    """Shares of tokens clipped at the upper and at the lower bound. The two make up `actor/pg_clipfrac`, so that one
    of them is enough to log."""
    high, both = row.get(CLIPPED_HIGH), row.get("actor/pg_clipfrac")
    if high is None or both is None:
        return None, None
    return high, max(both - high, 0.0)  # means of float32 shares may miss the 0 by a rounding


def _fill(step: StepT, keys: Iterable[Key], row: Row) -> StepT:
    def value_of(key: Key) -> float | None:
        value = row.get(key.key)
        return value * key.scale if value is not None else None

    return fill(step, keys, value_of)
