"""What a query is answered about recorded runs, beside what the runs themselves had."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.servers.live import Course, Recording
from tests.servers.queries import Query
from tests.servers.replay import HISTORY_S, SCRAPE_S, Replay
from tests.servers.truth import Truth
from tests.support.points import Point
from tests.support.servers import Sample
from tools.prometheus import Dialect


@dataclass(frozen=True)
class Answer:
    """The answer to a query, in one dialect.

    Attributes:
        expression: what was asked, with values for its variables.
        dialect: of its names.
        now: the result at the end of the runs. What is no number is no result.
        course: the result at each minute of the runs, by series.
        truth: what the runs had at their ends.
        replayed: what its server was given.
        files: every point in the runs' own files.
    """

    expression: str
    dialect: Dialect
    now: list[Sample]
    course: list[tuple[Mapping[str, str], list[float]]]
    truth: Truth
    replayed: tuple[Course, ...]
    files: list[Point]

    @property
    def values(self) -> list[float]:
        """Those of the result at the end, sorted."""
        return sorted(sample.value for sample in self.now)

    @property
    def minutes(self) -> int:
        """At how many minutes of the runs there was a result, over all series."""
        return sum(len(values) for _, values in self.course)


class World:
    """Recorded runs, and the servers that have them."""

    def __init__(self, recordings: Sequence[Recording], replay: Replay) -> None:
        self._replay = replay
        self._truths: Mapping[Dialect, Truth] = {
            "scrape": Truth(recordings, "scrape"),
            "collector": Truth(recordings, "collector"),
        }

        self._files = [point for recording in recordings for point in recording.files]

    def given(self, dialect: Dialect) -> tuple[Course, ...]:
        """What the server that has the names of the dialect was given."""
        return self._replay.given[dialect]

    def names(self, dialect: Dialect) -> set[str]:
        """The names of all series that it has."""
        return self._replay.server(dialect).names()

    def ask(self, query: Query, dialect: Dialect, variables: Mapping[str, str]) -> Answer:
        """Asks the server that has the names of the dialect."""
        server, now_s = self._replay.server(dialect), self._replay.now_s
        expression = query.with_values(variables)
        course = server.course(expression, now_s - HISTORY_S, now_s, SCRAPE_S)
        return Answer(
            expression,
            dialect,
            [sample for sample in server.query(expression, now_s) if math.isfinite(sample.value)],
            [(labels, found) for labels, values in course if (found := [v for v in values if math.isfinite(v)])],
            self._truths[dialect],
            self.given(dialect),
            self._files,
        )
