"""The figures that the rollouts of a step give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from akka_otel_callbacks.common.graders.call import decoded
from akka_otel_callbacks.common.graders.figures import set_graders
from akka_otel_callbacks.common.numbers import mean, number
from akka_otel_callbacks.common.recording.rewards import ScoredRollouts, distinct, set_rewards
from akka_otel_callbacks.common.recording.tools import set_tools
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.verl.driver.limits import Limits
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.inbox import PerToken

SCORE, ADDED_TO_SCORE = "score", "overlong_reward"
"""The total of a reward function that returns a dict. Only verl's DAPO reward manager adds a term to it afterwards."""


def set_figures(step: RLStep, batches: Iterable[Rollouts], limits: Limits) -> None:
    """Sets the figures that the rollouts give, in place of those from the log.

    Args:
        step: set in place.
        batches: the step's rollouts. Without any, the step stays as it is.
        limits: of the completions.
    """
    columns, batches = _Columns(), [*batches]
    set_graders(step, [call for batch in batches for text in batch.graded or () if text for call in decoded(text)])
    for batch in batches:
        columns.add(batch, limits)
    if not columns.rows:
        return
    _set_lengths(step, columns)
    set_rewards(step, columns.scored())
    _set_tools(step, columns.tools)


def mean_per_token(means: Iterable[PerToken]) -> float | None:
    """The mean over the tokens of all parts. None if there is no part. A part without a token has NaN, which is left
    out."""
    parts = [(float(mean), count) for mean, tokens in means if (count := float(tokens))]
    tokens = sum(count for _, count in parts)
    return sum(mean * count for mean, count in parts) / tokens if parts else None


@dataclass(slots=True)
class _Columns:
    """The rows of a step's batches. A row that was aborted generated nothing: it is no completion, and counts as a
    rollout of its prompt that was not scored."""

    rows: int = 0
    lengths: list[int | None] = field(default_factory=list)
    """Tokens that the model generated in each completion. None if that is not known."""
    truncated: list[bool | None] = field(default_factory=list)
    """Whether a limit ended the completion. None if that is not known."""
    totals: list[float | None] = field(default_factory=list)
    terms: dict[Any, list[float | None]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    tools: list[Sequence[int]] = field(default_factory=list)

    def add(self, batch: Rollouts, limits: Limits) -> None:
        lengths = _list(batch.lengths)
        generated = [length > 0 for length in lengths]
        last = [True] * len(lengths) if batch.last_of_session is None else batch.last_of_session
        self.rows += len(lengths)
        self.lengths += compress(_own_lengths(batch, lengths, limits), generated)
        self.truncated += compress(_truncated(batch, lengths, limits), generated)
        scores = [score if row else None for score, row in zip(_list(batch.scores), generated, strict=True)]
        for term, values in batch.terms.items():
            column = self.terms.setdefault(term, [])
            column += [None] * (len(self.totals) - len(column))  # the batches before had no such term
            column += _numbers(list(compress(_list(values), last)))
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
    """A column's values. On a device this waits for it, which is why it happens on the translator's thread."""
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _numbers(values: list[Any]) -> list[float | None]:
    if set(map(type, values)) <= {float, type(None)}:
        return values
    return [number(value, truth=True) for value in values]


def _own_lengths(batch: Rollouts, lengths: Sequence[float], limits: Limits) -> list[int | None]:
    if not limits.rejects:
        return [int(tokens) for tokens in _list(batch.own_lengths)]
    return [None if limits.has_tools else int(length) for length in lengths]


def _truncated(batch: Rollouts, lengths: Sequence[float], limits: Limits) -> list[bool | None]:
    """Whether each completion was cut off. A completion whose last allowed token is its end counts as truncated, as in
    verl."""
    bounds = _bounds(batch, len(lengths), limits)
    ended_by_tool = _ended_by_tool(batch, len(lengths), limits)
    return [
        None if bound is None or ended is None else ended or length >= bound
        for length, bound, ended in zip(lengths, bounds, ended_by_tool, strict=True)
    ]


def _bounds(batch: Rollouts, rows: int, limits: Limits) -> list[float | None]:
    """The most tokens that each completion may have after its prompt."""
    if limits.response is None or limits.window is None:
        return [limits.response] * rows
    prompts = _list(batch.prompt_lengths)
    return [min(limits.response, limits.window - prompt) for prompt in prompts] if prompts else [None] * rows


def _ended_by_tool(batch: Rollouts, rows: int, limits: Limits) -> list[bool | None]:
    if not limits.has_tools:
        return [False] * rows
    if batch.tools is None or not any(batch.tools):  # nobody counted them
        return [None] * rows
    return [False if tally is None else None if len(tally) < 3 else bool(tally[2]) for tally in batch.tools]


def _set_lengths(step: RLStep, columns: _Columns) -> None:
    lengths = [tokens for tokens in columns.lengths if tokens is not None]
    if len(lengths) < len(columns.lengths):
        lengths = []
    step.rollout_completion_length = lengths
    step.completion_length = mean([float(tokens) for tokens in lengths])
    step.completion_length_max, step.completion_length_min = max(lengths, default=None), min(lengths, default=None)
    step.completion_clipped_ratio = step.completion_length_terminated = None
    if columns.truncated and None not in columns.truncated:
        step.completion_clipped_ratio = columns.truncated.count(True) / len(columns.truncated)
        step.completion_length_terminated = mean(
            [float(tokens) for tokens, cut in zip(lengths, columns.truncated, strict=False) if not cut]
        )


def _set_tools(step: RLStep, tallies: Sequence[Sequence[int]]) -> None:
    """Sets the figures of tools. Only rollouts of agent loops that had tools have a tally."""
    set_tools(step, [tally[0] for tally in tallies], [tally[1] for tally in tallies])
