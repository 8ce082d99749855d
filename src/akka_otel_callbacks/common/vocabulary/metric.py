"""What the registry says of one metric and one attribute. `names.py`, generated from `registry/`, is made of these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """The OpenTelemetry instrument that a metric is recorded with."""

    GAUGE = "gauge"
    COUNTER = "counter"
    UPDOWNCOUNTER = "updowncounter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: every label of a point is looked up by it
class Attribute:
    """One attribute of a data point, a span or the resource.

    Attributes:
        name: the full name, such as `akka.optimize.training.rl.term`.
        type: `str`, `int`, `float` or `bool`, the type that its values have on the wire.
        description: one sentence.
        values: the well-known values, empty for an open set.
    """

    name: str
    type: type
    description: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: a metric is a key of every board
class Metric:
    """One metric of the registry.

    Attributes:
        name: the full name, such as `akka.optimize.training.rl.step.reward`.
        kind: the instrument.
        unit: UCUM; `1` only for a fraction from 0 to 1.
        description: one sentence, exported with the metric.
        attributes: what its data points may carry.
        buckets: explicit histogram bounds, empty for the SDK's own.
        exponential: a histogram with base-2 exponential buckets, whatever the SDK's default.
        sticky: its latest value lives until it is replaced, instead of ending with the step that had it.
        sticky_values: the same, for points whose attribute has one of these values.
    """

    name: str
    kind: Kind
    unit: str
    description: str
    attributes: tuple[Attribute, ...] = ()
    buckets: tuple[float, ...] = ()
    exponential: bool = False
    sticky: bool = False
    sticky_values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """One span of the registry, or one family of spans.

    Attributes:
        name: the full name; of a family, the part that all of its names begin with.
        description: one sentence.
        attributes: what it may carry.
        one_per: a family has one span for each value of this attribute, see `of`.
    """

    name: str
    description: str
    attributes: tuple[Attribute, ...] = ()
    one_per: Attribute | None = None

    def of(self, value: str) -> str:
        """The name of the family's span for a value, as `….checkpoint.upload` for `upload`."""
        return f"{self.name}.{value}"


@dataclass(frozen=True, slots=True)
class Event:
    """One log record of the registry.

    Attributes:
        name: the full name.
        description: one sentence.
        attributes: what it may carry.
    """

    name: str
    description: str
    attributes: tuple[Attribute, ...] = ()
