"""The rollouts of a step, one small record for every trainer, and the figures that they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.numbers import mean, number, sample_std
from akka_otel_callbacks.common.step import RLStep

TOTAL = names.RlTerm.TOTAL
SCORE, ADDED_TO_SCORE = "score", "overlong_reward"
"""A reward function that returns a dict has its total under `score`; only verl's DAPO reward manager adds a term to
it afterwards."""


@dataclass(slots=True, eq=False)
class Rollouts:
    """Columns of equal length, a row per sequence that was trained on. Tensors are read on the exporter's thread."""

    step: int | None = None
    scores: Any = ()
    """Reward of the row, before a KL penalty: tensor [rows]."""
    lengths: Any = ()
    """Tokens after the prompt, tool responses included: tensor [rows]. 0: the generation was aborted."""
    own_lengths: Any = ()
    """Those of them that the model generated: tensor [rows]."""
    groups: Sequence[str] | None = None
    """The prompt that each row belongs to."""
    last_of_session: Sequence[bool] | None = None
    """False for the earlier outputs of an agent loop that left several; None: every row is a completion of its own."""
    terms: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tools: Sequence[tuple[int, int] | None] | None = None
    """Calls and failed calls of each row whose agent loop had tools."""
    tokens: int | None = None
    """Prompt and completion tokens of all rows."""


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows of terms turned into columns, None where a row lacks the term."""
    return {term: [row.get(term) for row in rows] for term in dict.fromkeys(term for row in rows for term in row)}


def set_figures(step: RLStep, batches: Iterable[Rollouts], max_length: float | None) -> None:
    """Sets what the rollouts say, in place of what the log said of it.

    Args:
        step: set in place.
        batches: the step's rollouts; none leaves the step as it is.
        max_length: tokens at which a completion is truncated, None where it is not known.
    """
    seen = _Seen()
    for batch in batches:
        seen.add(batch)
    if not seen.rows:
        return
    _set_lengths(step, seen, max_length)
    _set_rewards(step, seen)
    _set_tools(step, seen.tools)


@dataclass(slots=True)
class _Seen:
    """Columns of the completions of a step. Aborted rows generated nothing and are in none of them."""

    rows: int = 0
    lengths: list[float] = field(default_factory=list)
    own_lengths: list[int] = field(default_factory=list)
    totals: list[float] = field(default_factory=list)
    terms: dict[str, list[float]] = field(default_factory=dict)
    by_group: dict[str, list[float]] = field(default_factory=dict)
    tools: list[tuple[int, int]] = field(default_factory=list)

    def add(self, batch: Rollouts) -> None:
        scores, lengths = _list(batch.scores), _list(batch.lengths)
        generated = [length > 0 for length in lengths]
        scored = generated
        if batch.last_of_session is not None:
            scored = [row and last for row, last in zip(generated, batch.last_of_session, strict=True)]
        totals = list(compress(scores, scored))
        self.rows += len(scores)
        self.lengths += compress(lengths, generated)
        self.own_lengths += map(int, compress(_list(batch.own_lengths), generated))
        self.totals += totals
        for term, values in _terms(batch).items():
            self.terms.setdefault(term, []).extend(
                value for raw in compress(values, scored) if (value := number(raw)) is not None
            )
        for group, total in zip(compress(batch.groups or (), scored), totals, strict=False):
            self.by_group.setdefault(group, []).append(total)
        self.tools += (tally for tally in compress(batch.tools or (), scored) if tally is not None)


def _list(column: Any) -> list[Any]:
    """A column's values. On a device this waits for it, which is why it happens on the exporter's thread."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _terms(batch: Rollouts) -> dict[str, list[Any]]:
    """The reward function's terms by a label that is not `total`, without verl's second name of the total."""
    hidden = set() if ADDED_TO_SCORE in batch.terms else {SCORE}
    return {
        f"{term}#2" if term == TOTAL else term: _list(values)
        for term, values in batch.terms.items()
        if term not in hidden
    }


def _set_lengths(step: RLStep, seen: _Seen, max_length: float | None) -> None:
    own = seen.own_lengths
    step.rollout_completion_length = own
    step.completion_length = mean([float(tokens) for tokens in own])
    step.completion_length_max, step.completion_length_min = max(own, default=None), min(own, default=None)
    step.completion_clipped_ratio = step.completion_length_terminated = None
    if max_length is not None and own:
        ended = [float(tokens) for tokens, length in zip(own, seen.lengths, strict=True) if length < max_length]
        step.completion_clipped_ratio = 1 - len(ended) / len(own)
        step.completion_length_terminated = mean(ended)


def _set_rewards(step: RLStep, seen: _Seen) -> None:
    totals = seen.totals
    step.rollouts = len(totals)
    if not totals:
        step.reward = None
        return
    terms = {term: values for term, values in seen.terms.items() if values} | {TOTAL: totals}
    step.reward, step.reward_std = mean(totals), sample_std(totals)
    step.reward_zero_ratio = totals.count(0.0) / len(totals)
    step.reward_term = {term: mean(values) for term, values in terms.items()}
    step.reward_term_std = {term: sample_std(values) for term, values in terms.items()}
    step.rollout_reward = terms
    step.frac_reward_zero_std = mean(
        [float(min(rewards) == max(rewards)) for rewards in seen.by_group.values() if len(rewards) > 1]
    )


def _set_tools(step: RLStep, tallies: Sequence[tuple[int, int]]) -> None:
    """Only rollouts of agent loops that had tools have a tally."""
    calls = sum(tally[0] for tally in tallies)
    step.tool_calls = calls / len(tallies) if tallies else None
    step.tool_failure_ratio = sum(tally[1] for tally in tallies) / calls if calls else None
