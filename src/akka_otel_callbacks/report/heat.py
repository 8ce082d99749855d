"""A distribution over the steps: which share of the values fell into which bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from akka_otel_callbacks.reading.histogram import Bucket
from akka_otel_callbacks.report.course import Totals


@dataclass(frozen=True, slots=True)
class Column:
    """The values that came after the step `since`, up to the step `until`, by bucket."""

    since: float
    until: float
    buckets: Sequence[Bucket]

    @property
    def count(self) -> int:
        return sum(bucket.count for bucket in self.buckets)


def columns(totals: Totals, most: int) -> list[Column]:
    """What a histogram that counts from zero gained from step to step.

    Args:
        totals: what it had counted.
        most: how many columns there are at most. Of more, neighbours become one.
    """
    every = max(-(-len(totals.points) // most), 1)
    found, since, before = [], totals.begin, None
    for step, histogram in [*totals.points[every - 1 : -1 : every], *totals.points[-1:]]:
        column = Column(since, step, histogram.buckets if before is None else histogram.since(before))
        if column.count:
            found.append(column)
        since, before = step, histogram
    return found
