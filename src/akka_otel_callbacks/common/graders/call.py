"""What is known of one term that scored one rollout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple


class Call(NamedTuple):
    """One term that scored one rollout, or several at once that each took as long."""

    term: str
    seconds: float
    """How long it took for each of the rollouts."""
    rows: int = 1
    cause: str | None = None
    """Why there is no score; one of the registry's causes."""
    input_tokens: int | None = None
    """Tokens of all rows together, as the judge counted them. None if it did not."""
    output_tokens: int | None = None
    may_fail: bool = False
    """Whether a failure would be known: one of the package's own graders made the call."""


def encoded(calls: Iterable[Call]) -> str:
    """Text for the way between processes, where a tag or a column of a batch takes it as any other text."""
    return json.dumps([*calls])


def decoded(text: str) -> list[Call]:
    return [Call(*call) for call in json.loads(text)]
