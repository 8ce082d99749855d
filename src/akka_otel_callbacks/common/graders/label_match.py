"""Compares the label that a completion gives with the gold answer's."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.function import marked
from akka_otel_callbacks.common.graders.rows import Row, is_batch, named, rows_of, text_of
from akka_otel_callbacks.common.graders.scoring import Scoring
from akka_otel_callbacks.common.graders.verdict import FENCED
from akka_otel_callbacks.common.vocabulary import names

UNGRADABLE = names.RlGraderFailureCause.UNGRADABLE


class JsonLabelMatch:
    """A reward term that is 1 where a completion gives the gold answer's label, and 0 where it gives another or none.

    A label is a JSON string, number, true or false, by itself or under `key` of a JSON object. A gold answer that is
    none cannot be compared: its row counts zero, and the failure is counted as `ungradable`.

    Args:
        gold: the column of the gold answer; verl calls it `ground_truth`.
        key: where an object has its label.
        term: another name for the term.
    """

    __name__: str
    """The term, as TRL asks for it."""

    def __init__(
        self, gold: str = "ground_truth", key: str = "label", *, term: str = names.RlTerm.JSON_LABEL_MATCH
    ) -> None:
        self._gold, self._key, self.term = gold, key, term
        marked(self, term)

    def __call__(self, **row: Any) -> Any:
        """Scores a batch of TRL's, or one row.

        Returns:
            A list with a score for each row of a batch; of one row its score.

        Raises:
            ValueError: the rows have no such column.
        """
        return [*map(self._score, rows_of(row))] if is_batch(row) else self._score(named(row))

    def _score(self, row: Row) -> float:
        if self._gold not in row:
            raise ValueError(f"no row has a column {self._gold!r} for the gold answer; there are {', '.join(row)}")
        with Scoring(self.term):
            wanted = label_of(row[self._gold], self._key)
            if wanted is None:
                raise GraderFailure(UNGRADABLE)
            return float(label_of(text_of(row["completion"]), self._key) == wanted)
        return 0.0


class Label(NamedTuple):
    """A label and its kind, because Python takes true for 1."""

    kind: str
    value: Any


def label_of(said: Any, key: str) -> Label | None:
    """The label in a text, None where there is none. A data set may have parsed its gold answers already."""
    found = _parsed(said) if isinstance(said, str) else said
    if isinstance(found, dict):
        found = found.get(key)
    if isinstance(found, bool):
        return Label("truth", found)
    if isinstance(found, (int, float)):
        return Label("number", found) if found == found else None
    return Label("text", found) if isinstance(found, str) else None


def _parsed(text: str) -> Any:
    fenced = FENCED.match(text.strip())
    try:
        return json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
