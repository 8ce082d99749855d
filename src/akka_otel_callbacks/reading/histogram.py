"""One histogram point of an OTLP document, explicit, exponential or a summary, and what its buckets can tell."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any

from akka_otel_callbacks.reading import fields

SCALES = range(-32, 33)
"""More than the specification's -10 to 20."""
LARGEST = 2**64 - 1
Bounds = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Bucket:
    """`count` values above `low` and up to `high`; the outermost bounds may be infinite."""

    low: float
    high: float
    count: int

    def is_within(self, wider: Bucket) -> bool:
        return wider.low <= self.low and self.high <= wider.high


@dataclass(slots=True)
class Histogram:
    """What one point says of the values behind it. `total`, `low` and `high` are None where the point has none.

    Attributes:
        bounds: above which value and up to which each bucket goes, ascending.
        counts: the values in each bucket, unsigned integers of 64 bits. A run has very many points, so that only these
            are kept of each; the bounds are shared.
    """

    count: int
    total: float | None
    low: float | None
    high: float | None
    bounds: Bounds
    counts: array[int]

    @property
    def buckets(self) -> list[Bucket]:
        return [Bucket(low, high, count) for (low, high), count in zip(self.bounds, self.counts, strict=True)]

    @property
    def mean(self) -> float | None:
        """The mean of the values. None if some were negative: such a histogram has no true sum."""
        if self.total is None or not self.count or self.has_negatives:
            return None
        return self.total / self.count

    @property
    def has_negatives(self) -> bool:
        return self.low is not None and self.low < 0

    def quantile(self, q: float) -> float | None:
        """The value below which the share `q` (0 to 1) of the values lies: linear within its bucket, never outside
        the smallest and the largest value. None without values and where its bucket has no finite bound, as the lowest
        has none that holds negative values: how they lie in it nobody knows."""
        rank, below = q * self.count, 0
        for bucket in self.buckets:
            if bucket.count and below + bucket.count >= rank:
                low, high = bucket.low, bucket.high
                if self.low is not None and not (self.has_negatives and math.isinf(low)):
                    low = max(low, self.low)
                if self.high is not None:
                    high = min(high, self.high)
                if not math.isfinite(high - low):
                    return None
                return min(high, low + (high - low) * (rank - below) / bucket.count)  # a rounding may pass the bound
            below += bucket.count
        return None

    def plus(self, later: Histogram) -> Histogram:
        """The histogram of both, as for two exports with delta temporality. If their buckets differ, because they have
        different scales, the wider buckets hold both."""
        merged: list[Bucket] = []
        for bucket in sorted([*self.buckets, *later.buckets], key=lambda bucket: (bucket.low, -bucket.high)):
            last = merged[-1] if merged else None
            if last and (bucket.low < last.high or (bucket.low, bucket.high) == (last.low, last.high)):
                merged.pop()
                bucket = Bucket(last.low, max(last.high, bucket.high), last.count + bucket.count)
            merged.append(bucket)
        total = None if self.total is None or later.total is None else self.total + later.total
        low, high = _known(min, self.low, later.low), _known(max, self.high, later.high)
        bounds = tuple((bucket.low, bucket.high) for bucket in merged)
        counts = array("Q", (min(bucket.count, LARGEST) for bucket in merged))
        return Histogram(self.count + later.count, total, low, high, bounds, counts)

    def since(self, earlier: Histogram) -> list[Bucket]:
        """What came into each bucket between an earlier point of the series and this one; everything where the series
        was counted anew meanwhile."""
        past = earlier.buckets
        new = [
            replace(bucket, count=bucket.count - sum(was.count for was in past if was.is_within(bucket)))
            for bucket in self.buckets
        ]
        return self.buckets if any(bucket.count < 0 for bucket in new) else new


def explicit(point: Mapping[str, Any]) -> Histogram:
    """A point with explicit bounds; its first bucket starts at minus infinity, its last one ends at infinity."""
    bounds = _explicit(tuple(point.get("explicitBounds") or ()))
    counts = fields.counts(point, "bucketCounts")
    if counts and len(counts) != len(bounds):
        raise fields.Malformed(f"{len(counts)} buckets do not fit {len(bounds) - 1} bounds")
    return _histogram(point, bounds if counts else (), counts)


def exponential(point: Mapping[str, Any]) -> Histogram:
    """A point with base-2 exponential buckets: negative values, those near zero, positive values."""
    scale = fields.whole(point, "scale", SCALES)
    (negative, below), (above, positive) = (_side(fields.mapping(point, side)) for side in ("negative", "positive"))
    zero = fields.real(point, "zeroThreshold") or 0.0
    # A smallest value that no negative bucket holds was counted here, as our own histograms have it.
    holds_negatives = not below and (fields.real(point, "min") or 0) < 0
    zeros = (-math.inf if holds_negatives else -zero, zero)
    mirrored = tuple((-high, -low) for low, high in reversed(_exponential(scale, negative, len(below))))
    bounds = (*mirrored, zeros, *_exponential(scale, above, len(positive)))
    counts = array("Q", [*reversed(below), fields.whole(point, "zeroCount"), *positive])
    return _histogram(point, bounds, counts)


def summary(point: Mapping[str, Any]) -> Histogram:
    """A point of Prometheus's summaries, which have no buckets."""
    return _histogram(point, (), array("Q"))


def _known(choose: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else choose(one, other)


def _side(side: Mapping[str, Any]) -> tuple[int, array[int]]:
    return fields.whole(side, "offset", fields.INT32), fields.counts(side, "bucketCounts")


@lru_cache(256)
def _explicit(written: tuple[Any, ...]) -> Bounds:
    edges = fields.reals({"explicitBounds": [*written]}, "explicitBounds")
    bounds = tuple(pairwise((-math.inf, *edges, math.inf)))
    if not all(low < high for low, high in bounds):
        raise fields.Malformed("the bounds do not ascend")
    return bounds


@lru_cache(256)
def _exponential(scale: int, offset: int, number: int) -> Bounds:
    return tuple(pairwise(map(_bound, range(offset, offset + number + 1), repeat(scale)))) if number else ()


def _bound(index: int, scale: int) -> float:
    try:
        return math.pow(2.0, index * 2.0**-scale)
    except OverflowError:
        return math.inf


def _histogram(point: Mapping[str, Any], bounds: Bounds, counts: array[int]) -> Histogram:
    total, low, high = fields.real(point, "sum"), fields.real(point, "min"), fields.real(point, "max")
    return Histogram(fields.whole(point, "count"), total, low, high, bounds, counts)
