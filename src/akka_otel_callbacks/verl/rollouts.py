"""The rollouts of a step, one small record for every trainer, and the figures that they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from akka_otel_callbacks.common.numbers import mean, number
from akka_otel_callbacks.common.rewards import ScoredRollouts, distinct, set_rewards
from akka_otel_callbacks.common.step import RLStep

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
    columns = _Columns()
    for batch in batches:
        columns.add(batch)
    if not columns.rows:
        return
    _set_lengths(step, columns, max_length)
    set_rewards(step, columns.scored())
    _set_tools(step, columns.tools)


@dataclass(slots=True)
class _Columns:
    """The rows of a step's batches. One that was aborted generated nothing: it is no completion, and as a rollout of
    its prompt it was not scored."""

    rows: int = 0
    lengths: list[float] = field(default_factory=list)
    own_lengths: list[int] = field(default_factory=list)
    totals: list[float | None] = field(default_factory=list)
    terms: dict[Any, list[float | None]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    tools: list[tuple[int, int]] = field(default_factory=list)

    def add(self, batch: Rollouts) -> None:
        lengths = _list(batch.lengths)
        generated = [length > 0 for length in lengths]
        last = [True] * len(lengths) if batch.last_of_session is None else batch.last_of_session
        self.rows += len(lengths)
        self.lengths += compress(lengths, generated)
        self.own_lengths += map(int, compress(_list(batch.own_lengths), generated))
        scores = [score if row else None for score, row in zip(_list(batch.scores), generated, strict=True)]
        for term, values in batch.terms.items():
            column = self.terms.setdefault(term, [])
            column += [None] * (len(self.totals) - len(column))  # the batches before had no such term
            column += [number(value, truth=True) for value in compress(_list(values), last)]
        self.totals += compress(scores, last)
        self.groups += compress(batch.groups or (), last)
        tallies = compress(batch.tools or (), map(all, zip(generated, last, strict=True)))
        self.tools += (tally for tally in tallies if tally is not None)

    def scored(self) -> ScoredRollouts:
        count = len(self.totals)
        hidden = () if ADDED_TO_SCORE in self.terms else (SCORE,)  # verl's second name of the total
        terms = {term: column for term, column in self.terms.items() if term not in hidden}
        return ScoredRollouts(
            totals=self.totals,
            terms={
                label: column + [None] * (count - len(column))
                for label, column in zip(distinct(map(str, terms)), terms.values(), strict=True)
            },
            groups=self.groups if len(self.groups) == count else None,
        )


def _list(column: Any) -> list[Any]:
    """A column's values. On a device this waits for it, which is why it happens on the exporter's thread."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _set_lengths(step: RLStep, columns: _Columns, max_length: float | None) -> None:
    own = columns.own_lengths
    step.rollout_completion_length = own
    step.completion_length = mean([float(tokens) for tokens in own])
    step.completion_length_max, step.completion_length_min = max(own, default=None), min(own, default=None)
    step.completion_clipped_ratio = step.completion_length_terminated = None
    if max_length is not None and own:
        ended = [float(tokens) for tokens, length in zip(own, columns.lengths, strict=True) if length < max_length]
        step.completion_clipped_ratio = 1 - len(ended) / len(own)
        step.completion_length_terminated = mean(ended)


def _set_tools(step: RLStep, tallies: Sequence[tuple[int, int]]) -> None:
    """Only rollouts of agent loops that had tools have a tally."""
    calls = sum(tally[0] for tally in tallies)
    step.tool_calls = calls / len(tallies) if tallies else None
    step.tool_failure_ratio = sum(tally[1] for tally in tallies) / calls if calls else None
