"""The rollouts of a step, in one small record for every trainer. Every process that loads a trainer loads this module,
so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from akka_otel_callbacks.verl.inbox import PerToken


@dataclass(slots=True, eq=False)
class Rollouts:
    """The rollouts of one batch. Its columns have one row for each sequence that was trained on. Tensors are read on
    the translator's thread."""

    step: int | None = None
    scores: Any = ()
    """Reward of the row, before a KL penalty: tensor [rows]."""
    prompt_lengths: Any = ()
    """Tokens of the prompt: tensor [rows]."""
    lengths: Any = ()
    """Tokens after the prompt, tool responses included: tensor [rows]. 0: the generation was aborted."""
    own_lengths: Any = ()
    """Tokens that the model generated itself and that were not rejected for the update: tensor [rows]."""
    groups: Sequence[str] | None = None
    """The prompt that each row belongs to."""
    last_of_session: Sequence[bool] | None = None
    """False for the earlier outputs of an agent loop that left several. None if every row is a completion of its
    own."""
    terms: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tools: Sequence[Sequence[int] | None] | None = None
    """For each row, if its agent loop had tools: calls, failed calls, and whether a tool's response did not fit, which
    ends the completion."""
    graded: Sequence[str | None] | None = None
    """For each row, if it was scored: what scored it, as text."""
    tokens: int | None = None
    """Prompt and completion tokens of all rows."""
    entropy: Sequence[PerToken] = ()
    """The policy's entropy, for each part of the batch."""
    kl: Sequence[PerToken] = ()
    """The divergence that was taken off the rewards, for each part of the batch."""

    @property
    def values_held(self) -> int:
        return len(self.scores) * (4 + len(self.terms))


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turns rows of terms into columns. A row that lacks a term has None there."""
    return {term: [row.get(term) for row in rows] for term in dict.fromkeys(term for row in rows for term in row)}
