"""A figure over the steps of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.reading.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Course:
    """A figure with one set of attributes over the run.

    Attributes:
        x: steps, ascending; a fraction lies within the step after.
        y: as many values.
    """

    labels: Mapping[str, str]
    x: Sequence[float]
    y: Sequence[float]

    def of(self, attribute: Attribute) -> str:
        """Its value of an attribute, empty where it has none."""
        return self.labels.get(attribute.name, "")


@dataclass(frozen=True, slots=True)
class Totals:
    """What a histogram with one set of attributes had counted in one attempt.

    Attributes:
        begin: the number before the attempt's first step.
        points: the newest complete step of each export with what was counted until then, ascending.
    """

    labels: Mapping[str, str]
    begin: float
    points: Sequence[tuple[float, Histogram]]

    def of(self, attribute: Attribute) -> str:
        """Its value of an attribute, empty where it has none."""
        return self.labels.get(attribute.name, "")
