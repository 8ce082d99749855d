"""TRL's log keys, of every version, and the figure that each of them stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import mul
from typing import Any

from akka_otel_callbacks.common.numbers import mean, number
from akka_otel_callbacks.common.recording.log_keys import LogKey, StepT, fill
from akka_otel_callbacks.common.recording.tools import set_tools
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep

Reduce = Callable[[list[float]], "float | None"]
Values = Mapping[str, Any]
"""By key, the value in a log row, or the list of values that a step added."""
Counts = Mapping[str, "Sequence[float] | None"]
"""By what is counted, its number in each micro-batch of the step. None where that is not known."""
TOKENS, RATIOS, LABELS = "tokens", "ratios", "labels"


@dataclass(frozen=True, slots=True)
class Key(LogKey):
    """How several values of one step become one."""

    reduce: Reduce = mean
    of: str | None = None
    """What the value of a micro-batch is a mean over. The step's mean is weighted by their number, if it is known."""


RL_KEYS = (
    Key("entropy", "entropy", of=TOKENS),
    Key("kl", "kl", of=TOKENS),
    Key("frac_reward_zero_std", "frac_reward_zero_std"),
    Key("loss", "loss"),
    Key("grad_norm", "grad_norm"),
    Key("learning_rate", "learning_rate"),
    Key("completions/clipped_ratio", "completion_clipped_ratio"),
    Key("completions/mean_length", "completion_length"),
    Key("completions/max_length", "completion_length_max", max),
    Key("completions/min_length", "completion_length_min", min),
    Key("completion_length", "completion_length"),  # up to 0.16
    Key("clip_ratio/region_mean", "clip_ratio", of=RATIOS),
    Key("clip_ratio/high_mean", "clip_ratio_high", of=RATIOS),
    Key("clip_ratio/low_mean", "clip_ratio_low", of=RATIOS),
    Key("clip_ratio", "clip_ratio", of=RATIOS),  # up to 0.16, and the Liger loss
    Key("cispo_clip_ratio", "clip_ratio", of=RATIOS),  # cispo clips at the upper bound only
    Key("cispo_clip_ratio", "clip_ratio_high", of=RATIOS),
    Key("policy_loss", "policy_loss"),  # with an entropy bonus only
)
REWARD_KEYS = (
    Key("reward", "reward"),
    Key("reward_std", "reward_std"),
)
SFT_KEYS = (
    Key("loss", "loss"),
    Key("grad_norm", "grad_norm"),
    Key("learning_rate", "learning_rate"),
    Key("mean_token_accuracy", "token_accuracy", of=LABELS),
)
TERMINATED, CLIPPED = "completions/mean_terminated_length", "completions/clipped_ratio"
TOOL_CALLS, TOOL_FAILURES = "tools/call_frequency", "tools/failure_frequency"
PREFERENCES = ("chosen", "rejected", "accuracies", "margins")
"""What trainers such as OnlineDPO log under `rewards/`: implicit rewards of a policy, which no reward function gave."""
REWARDS, MEAN, STD = "rewards/", "/mean", "/std"
NUM_TOKENS = "num_tokens"
RL_READ = frozenset({key.key for key in (*RL_KEYS, *REWARD_KEYS)} | {TERMINATED, CLIPPED, TOOL_CALLS, TOOL_FAILURES})
SFT_READ = frozenset({key.key for key in SFT_KEYS} | {NUM_TOKENS})
EVAL = "eval"


def is_read_of_rl(key: str) -> bool:
    """Whether `rl_step` reads this log key."""
    return key in RL_READ or str(key).startswith(REWARDS)


def is_read_of_sft(key: str) -> bool:
    """Whether `sft_step`, or the count of tokens, reads this log key."""
    return key in SFT_READ


def rl_step(values: Values, weights: Mapping[str, float] | None = None) -> RLStep:
    """The figures of a log row, or of a step's new values. The rewards are those that TRL logged.

    Args:
        values: numbers or lists of numbers by TRL's key; anything else in it is left out.
        weights: the reward functions' weights by name. A missing one is 1.
    """
    step = update_step(values)
    set_logged_rewards(step, values, weights or {})
    return step


def update_step(values: Values, counts: Counts | None = None) -> RLStep:
    """The same as `rl_step`, without the rewards.

    Args:
        values: the same as for `rl_step`.
        counts: `TOKENS` that the loss counts, and probability `RATIOS`, of each micro-batch.
    """
    step = _fill(RLStep(), RL_KEYS, values, counts or {})
    step.completion_length_terminated = _terminated(values)
    _set_tools(step, values)
    return step


def set_logged_rewards(step: RLStep, values: Values, weights: Mapping[str, float]) -> None:
    """Sets the figures of rewards as TRL logged them, for a step whose scores are not known."""
    _fill(step, REWARD_KEYS, values, {})
    step.reward_term = _terms(values, MEAN, weights) | _total(step.reward)
    step.reward_term_std = _terms(values, STD, weights) | _total(step.reward_std)


def sft_step(values: Values, labels: Sequence[float] | None = None) -> SFTStep:
    """The figures of a log row, or of a step's new values, of SFT and of other trainers that log the same keys.

    Args:
        values: numbers or lists of numbers by TRL's key; anything else in it is left out.
        labels: of each micro-batch.
    """
    return _fill(SFTStep(), SFT_KEYS, values, {LABELS: labels})


def rl_evaluation(metrics: Values) -> RLStep:
    """What one evaluation of a reinforcement trainer amends."""
    return RLStep(eval_reward=_of_set(metrics, eval_reward(metrics)))


def sft_evaluation(metrics: Values) -> SFTStep:
    """What one evaluation of any other trainer amends."""
    loss = _of_set(metrics, eval_loss(metrics))
    return SFTStep(eval_loss=loss, timing_s={names.SftStepPhase.EVAL: eval_runtime_s(metrics)})


def _of_set(metrics: Values, value: float | None) -> Any:
    """The value in the form of a step's field: by the set's name, or alone if the set has no name."""
    name = eval_set(metrics)
    return value if name is None or value is None else {name: value}


def eval_loss(metrics: Values) -> float | None:
    """The loss of one evaluation: `eval_loss`, or `eval_<set>_loss` if the evaluation set has a name."""
    return number(metrics.get(f"{_eval_prefix(metrics)}_loss"))


def eval_reward(metrics: Values) -> float | None:
    """The mean reward of one evaluation. TRL names it so whatever the set is called."""
    return number(metrics.get("eval_reward"))


def eval_set(metrics: Values) -> str | None:
    """The name of the set that was evaluated. None if it has none."""
    prefix = _eval_prefix(metrics)
    return None if prefix == EVAL else prefix.removeprefix(f"{EVAL}_")


def eval_runtime_s(metrics: Values) -> float | None:
    return number(metrics.get(f"{_eval_prefix(metrics)}_runtime"))


def _eval_prefix(metrics: Values) -> str:
    """`eval`, `eval_<set>` or another prefix that the user chose. Every key begins with it, also those of the user's
    own metrics (`eval_<set>_nll_runtime`), so the trainer's own key is the shortest with its ending."""
    for ending in ("_samples_per_second", "_runtime", "_loss"):
        if endings := [str(key) for key in metrics if str(key).endswith(ending)]:
            return min(endings, key=len).removesuffix(ending)
    return EVAL


def is_evaluation(row: Values) -> bool:
    return any(str(key).startswith("eval_") for key in row)


def is_summary(row: Values) -> bool:
    """Whether this is the row at the end of a training. `train_runtime` does not tell, because some settings add it to
    every row."""
    return "train_loss" in row


def _fill(step: StepT, keys: Iterable[Key], values: Values, counts: Counts) -> StepT:
    def value_of(key: Key) -> float | None:
        value = values.get(key.key)
        if value is None or not (found := _numbers(value)):
            return None
        weights = counts.get(key.of) if key.of else None
        if weights is None or len(weights) != len(found):
            return key.reduce(found)
        return _weighted(found, weights)

    return fill(step, keys, value_of)


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float | None:
    """The mean. None where nothing was counted. TRL writes 0 for a micro-batch that has nothing to count."""
    if 0 in weights:  # its value may be NaN, which no weight takes away
        values, weights = [*compress(values, weights)], [*compress(weights, weights)]
    return sum(map(mul, values, weights)) / sum(weights) if weights else None


def _numbers(value: Any) -> list[float]:
    if value.__class__ is list and {*map(type, value)} == {float}:
        return value  # type: ignore[no-any-return]
    items = value if isinstance(value, (list, tuple)) else [value]
    return [found for item in items if (found := number(item)) is not None]


def _terminated(values: Values) -> float | None:
    """The mean over the step's generations, each weighted by its share of completions that ended. TRL writes 0 if all
    of a generation were truncated. A completion that ended has at least its EOS, so a 0 is never a length."""
    lengths, clipped = _numbers(values.get(TERMINATED, ())), _numbers(values.get(CLIPPED, ()))
    if len(lengths) < 2 or len(lengths) != len(clipped):
        return mean([length for length in lengths if length != 0])
    ended = [1 - share for share in clipped]
    weighted = sum(length * share for length, share in zip(lengths, ended, strict=True))
    return weighted / sum(ended) if sum(ended) else None


def _set_tools(step: RLStep, values: Values) -> None:
    """Sets the figures of tools from the step's generations. Each has its mean number of calls and the share of them
    that failed. TRL writes 0 for a generation without a call."""
    calls, shares = _numbers(values.get(TOOL_CALLS, ())), _numbers(values.get(TOOL_FAILURES, ()))
    known = len(calls) == len(shares)
    set_tools(step, calls, [call * share for call, share in zip(calls, shares, strict=True)] if known else None)


def _terms(values: Values, suffix: str, weights: Mapping[str, float]) -> dict[str, Any]:
    """`rewards/<name>/mean` or `/std` (up to 0.16 `rewards/<name>` for the mean), as the weighted share."""
    terms = {}
    for key in [key for key in values if str(key).startswith(REWARDS)]:
        name, value = _term_name(str(key), suffix), values[key]
        found = mean(_numbers(value)) if name is not None else None
        if name is not None and found is not None:
            weight = weights.get(name, 1.0)
            terms[name] = found * (weight if suffix == MEAN else abs(weight))
    return terms


def _term_name(key: str, suffix: str) -> str | None:
    name = key[len(REWARDS) :]
    if name.endswith(suffix):
        return name[: -len(suffix)] or None
    is_early_mean = suffix == MEAN and not name.endswith(STD) and name not in PREFERENCES
    return name or None if is_early_mean else None


def _total(value: float | None) -> dict[str, float]:
    return {} if value is None else {names.RlTerm.TOTAL: value}
