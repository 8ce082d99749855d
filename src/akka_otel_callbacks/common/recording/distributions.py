"""Histograms as data: the values of many steps are counted at once, where the SDK takes a call for each value.

The counts are those that the SDK makes of the same values, except for values that equal a bound in single precision
(see `ROUNDING`). A distribution never changes; the sum of two is that of all their values. A reader with delta
temporality counts the values since its last export, because a minimum cannot be subtracted.

A negative value is counted in the lowest bucket, under its true minimum. OTLP has a `sum` only of values that cannot be
negative, so a distribution with a negative value has none.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary.points import Attributes

if TYPE_CHECKING:  # a process that publishes nothing does not load the SDK
    from opentelemetry.sdk.metrics.export import ExponentialHistogramDataPoint, HistogramDataPoint

MAX_BUCKETS, MAX_SCALE = 160, 20
"""The limits of an exponential histogram, as in the OpenTelemetry specification."""
ROUNDING = 2.0**-22
"""By how much of itself a sum of single-precision numbers may differ. Engines keep scores and weights in single
precision, where 0.4 is a little more than 0.4: a reward of 1 from weighted terms would be counted above 1."""
SMALLEST_NORMAL = sys.float_info.min
MAX_EXPONENT = sys.float_info.max_exp
FLOATS, NUMBERS = frozenset({float}), frozenset({float, int})


class Numbers(NamedTuple):
    """The numbers among some values, as `number` reads them."""

    finite: Sequence[float]
    nonfinite: int = 0
    """How many were NaN or infinite."""


def numbers_of(values: Sequence[Any]) -> Numbers:
    numbers = _numbers(values)
    if math.isfinite(sum(numbers)):  # then each of them is
        return Numbers(numbers)
    finite = [*filter(math.isfinite, numbers)]
    return Numbers(finite, len(numbers) - len(finite))


def _numbers(values: Sequence[Any]) -> Sequence[float]:
    kinds = {*map(type, values)}
    if kinds == FLOATS:
        return values
    if kinds <= NUMBERS:
        with suppress(OverflowError):
            return [*map(float, values)]
    return [found for found in map(number, values) if found is not None]


@dataclass(slots=True)
class Summary:
    """What a histogram says beside its buckets."""

    count: int = 0
    total: float = 0.0
    min: float = math.inf
    max: float = -math.inf
    negative: int = 0

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """The summary of values that are in ascending order."""
        if not values:
            return cls()
        return cls(len(values), sum(values), values[0], values[-1], bisect_left(values, 0.0))

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.count + other.count,
            self.total + other.total,
            min(self.min, other.min),
            max(self.max, other.max),
            self.negative + other.negative,
        )

    @property
    def sum(self) -> Any:
        """None if a value was negative. OTLP and its encoders take None, although the SDK's types say float."""
        return None if self.negative else self.total


@dataclass(slots=True)
class Explicit:
    """Buckets between fixed bounds. Each holds the values above its lower bound, up to and including its upper one. A
    value that single precision cannot tell from a bound counts as the bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    summary: Summary = field(default_factory=Summary)

    @classmethod
    def of(cls, values: Iterable[float], bounds: tuple[float, ...]) -> Explicit:
        values = sorted(values)
        up_to = [bisect_right(values, bound + ROUNDING * abs(bound)) for bound in bounds]
        return cls(bounds, tuple(map(sub, [*up_to, len(values)], [0, *up_to])), Summary.of(values))

    def __add__(self, other: Explicit) -> Explicit:
        return Explicit(self.bounds, tuple(map(add, self.counts, other.counts)), self.summary + other.summary)

    def point(self, attributes: Attributes, start_ns: int, time_ns: int) -> HistogramDataPoint:
        from opentelemetry.sdk.metrics.export import HistogramDataPoint

        return HistogramDataPoint(
            attributes,
            start_ns,
            time_ns,
            count=self.summary.count,
            sum=self.summary.sum,
            bucket_counts=self.counts,
            explicit_bounds=self.bounds,
            min=self.summary.min,
            max=self.summary.max,
        )


@dataclass(slots=True)
class Exponential:
    """Base-2 exponential buckets: bucket i holds the values above base^i, up to and including base^(i + 1), where the
    base is 2^(2^-scale). The scale is the finest at which `MAX_BUCKETS` reach from the lowest to the highest value
    above zero; the lowest bucket is the one of zero."""

    scale: int = MAX_SCALE
    zeros: int = 0
    counts: Mapping[int, int] = field(default_factory=dict)
    """The counts of the buckets that hold something, by the bucket's index."""
    summary: Summary = field(default_factory=Summary)

    @classmethod
    def of(cls, values: Iterable[float]) -> Exponential:
        values = sorted(values)
        zeros = bisect_right(values, 0.0)
        if zeros == len(values):
            return cls(zeros=zeros, summary=Summary.of(values))
        index_of = _mapping(MAX_SCALE)
        scale = _fitting_scale(MAX_SCALE, index_of(values[zeros]), index_of(values[-1]))
        index_of, counts = _mapping(scale), dict[int, int]()
        for value, count in Counter(values[zeros:]).items():
            index = index_of(value)
            counts[index] = counts.get(index, 0) + count
        return cls(scale, zeros, counts, Summary.of(values))

    def __add__(self, other: Exponential) -> Exponential:
        scale = min(self.scale, other.scale)
        counts = dict(self._counts_at(scale))
        for index, count in other._counts_at(scale).items():
            counts[index] = counts.get(index, 0) + count
        merged = Exponential(scale, self.zeros + other.zeros, counts, self.summary + other.summary)
        if counts:
            merged.scale = _fitting_scale(scale, min(counts), max(counts))
            merged.counts = _coarser(counts, scale - merged.scale)
        return merged

    def point(self, attributes: Attributes, start_ns: int, time_ns: int) -> ExponentialHistogramDataPoint:
        from opentelemetry.sdk.metrics.export import Buckets, ExponentialHistogramDataPoint

        low, high = min(self.counts, default=0), max(self.counts, default=-1)
        return ExponentialHistogramDataPoint(
            attributes,
            start_ns,
            time_ns,
            count=self.summary.count,
            sum=self.summary.sum,
            scale=self.scale if self.counts else 0,
            zero_count=self.zeros,
            positive=Buckets(low, [self.counts.get(index, 0) for index in range(low, high + 1)]),
            negative=Buckets(0, []),
            flags=0,
            min=self.summary.min,
            max=self.summary.max,
        )

    def between_powers_of_two(self, bounds: tuple[float, ...]) -> Explicit:
        """The same values in explicit buckets, exactly, because every power of two is the bound of a bucket here.

        Args:
            bounds: powers of two.
        """
        counts = [0] * (len(bounds) + 1)
        counts[0] = self.zeros
        for exponent, count in self._counts_at(min(self.scale, 0)).items():
            upper = (exponent + 1) << -min(self.scale, 0)
            counts[bisect_left(bounds, math.ldexp(1.0, min(upper, MAX_EXPONENT - 1)))] += count
        return Explicit(bounds, tuple(counts), self.summary)

    def _counts_at(self, scale: int) -> Mapping[int, int]:
        """The counts at a coarser scale."""
        return _coarser(self.counts, self.scale - scale)


Distribution: TypeAlias = Explicit | Exponential


def _fitting_scale(scale: int, low: int, high: int) -> int:
    """The finest scale, at most this one, at which the buckets from `low` to `high` are few enough."""
    while high - low >= MAX_BUCKETS:
        low, high, scale = low >> 1, high >> 1, scale - 1
    return scale


def _coarser(counts: Mapping[int, int], steps: int) -> Mapping[int, int]:
    """The counts at a scale that many steps coarser, each of which joins two neighbouring buckets."""
    if steps == 0:
        return counts
    joined: dict[int, int] = {}
    for index, count in counts.items():
        joined[index >> steps] = joined.get(index >> steps, 0) + count
    return joined


@cache
def _mapping(scale: int) -> Callable[[float], int]:
    """What gives the bucket of a value above zero. Below the smallest normal float the logarithm is too coarse: all go
    in the bucket of that one. An exact power of two is a bucket's upper bound, which the logarithm might miss."""
    frexp, log, floor = math.frexp, math.log, math.floor
    factor, last = math.ldexp(1 / log(2), scale), (MAX_EXPONENT << max(scale, 0)) - 1

    def of_exponent(value: float) -> int:
        mantissa, exponent = frexp(value if value > SMALLEST_NORMAL else SMALLEST_NORMAL)
        return (exponent - 1 - (mantissa == 0.5)) >> -scale

    def of_logarithm(value: float) -> int:
        mantissa, exponent = frexp(value if value > SMALLEST_NORMAL else SMALLEST_NORMAL)
        if mantissa == 0.5:
            return ((exponent - 1) << scale) - 1
        index = floor(log(value) * factor)
        return index if index < last else last

    return of_logarithm if scale > 0 else of_exponent
