"""A step's reward figures from its scored rollouts: one definition for every engine.

It is TRL's. A rollout that was not scored has no reward and is left out. A term that gave a scored rollout no share
adds nothing to its total: the share counts as 0 in means and spreads, so that the shares of all terms sum to `total`.
The spread of a prompt's rewards is that of its scored rollouts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from akka_otel_callbacks.common.numbers import are_finite, mean, sample_std
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep

TOTAL = names.RlTerm.TOTAL
SAME_REWARD = 1e-8
"""TRL's own tolerance for a standard deviation of zero."""

Column = Sequence[float | None]
"""A number per rollout. None where there is none."""
IsScored = Sequence[bool] | None
"""For each rollout, whether it was scored. None if all were."""


@dataclass(slots=True, eq=False)
class ScoredRollouts:
    """A step's completions, as columns of equal length.

    A NaN or an infinity is a score that went wrong. The recorder counts it. A rollout with such a total counts as not
    scored.
    """

    totals: Column
    """The whole reward of each rollout. None for one that was not scored."""
    terms: Mapping[str, Column] = field(default_factory=dict)
    """Each term's share in the rewards, by the term's label (see `distinct`). None for a rollout that the term gave no
    share."""
    groups: Sequence[Hashable] | None = None
    """The prompt that each rollout belongs to. None where that is not known."""


def set_rewards(step: RLStep, rollouts: ScoredRollouts) -> None:
    """Sets every reward figure and the values of the reward histogram, in place of what the engine logged of them.

    If the groups are not known, the logged share of groups without a spread stays.
    """
    is_scored = None if are_finite(rollouts.totals) else [_is_finite(total) for total in rollouts.totals]
    columns = {**rollouts.terms, TOTAL: rollouts.totals}
    shares = {term: found for term, column in columns.items() if (found := _shares(column, is_scored))}
    totals = shares.get(TOTAL, ())
    means = {term: mean(column) for term, column in shares.items()}
    spreads = {term: sample_std(column) for term, column in shares.items()}
    step.rollouts = len(totals)
    step.reward, step.reward_std = means.get(TOTAL), spreads.get(TOTAL)
    step.reward_min, step.reward_max = min(totals, default=None), max(totals, default=None)
    step.reward_zero_ratio = totals.count(0.0) / len(totals) if totals else None
    step.reward_term, step.reward_term_std = means or None, spreads or None
    step.rollout_reward = {
        term: recorded
        for term, column in columns.items()
        if (recorded := _recorded(column, rollouts.totals, is_scored))
    }
    if rollouts.groups is not None:
        step.frac_reward_zero_std = _share_without_spread(rollouts.totals, rollouts.groups, is_scored)


def distinct(terms: Iterable[str]) -> list[str]:
    """Term names that differ from each other and from `total`: a second `f` becomes `f#2`."""
    taken: set[str] = {TOTAL}
    labels = []
    for term in terms:
        label, count = term, 1
        while label in taken:
            count += 1
            label = f"{term}#{count}"
        taken.add(label)
        labels.append(label)
    return labels


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _shares(column: Column, is_scored: IsScored) -> Sequence[float]:
    """A term's share in every scored rollout, 0 where it gave none. Empty where it gave none to any of them."""
    given = column if is_scored is None else [*compress(column, is_scored)]
    if are_finite(given):
        return given  # type: ignore[return-value]
    shares = [value if value is not None and math.isfinite(value) else 0.0 for value in given]
    return shares if any(map(_is_finite, given)) else ()


def _recorded(column: Column, totals: Column, is_scored: IsScored) -> Sequence[float]:
    """What the histogram gets of a term: every share that it gave to a scored rollout, and every score that went wrong,
    which the recorder counts separately."""
    if is_scored is None and are_finite(column):
        return column  # type: ignore[return-value]
    return [
        value
        for value, total in zip(column, totals, strict=True)
        if value is not None and total is not None and (math.isfinite(total) or not math.isfinite(value))
    ]


def _share_without_spread(totals: Column, groups: Sequence[Hashable], is_scored: IsScored) -> float | None:
    """Of the prompts that have scored rollouts, the share whose scored rollouts all got the same reward. A prompt with
    a single rollout has no spread by design and is left out."""
    by_group: defaultdict[Hashable, list[Any]] = defaultdict(list)
    for group, total in zip(groups, totals, strict=True):
        by_group[group].append(total)
    scored = [column for column in by_group.values() if len(column) > 1]
    if is_scored is not None:
        scored = [found for column in scored if (found := [*filter(_is_finite, column)])]
    return mean([*map(_are_same, scored)])


def _are_same(rewards: Sequence[float]) -> bool:
    width = max(rewards) - min(rewards)
    if width == 0:
        return True  # the deviation of large ones is not exactly 0
    if width > SAME_REWARD * 2 * len(rewards):
        return False  # the deviation of n values is at least a 2n-th of their width
    spread = sample_std(rewards)
    return spread is not None and spread <= SAME_REWARD
