"""One histogram point of an OTLP document, explicit or exponential, and the quantiles its buckets can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Bucket:
    """`count` values above `low` and up to `high`; the outermost bounds may be infinite."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """What one point says of the values behind it. `total`, `low` and `high` are None where the point has none."""

    count: int
    total: float | None
    low: float | None
    high: float | None
    buckets: tuple[Bucket, ...]

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.total is not None and self.count else None

    def quantile(self, q: float) -> float | None:
        """The value below which the share `q` (0 to 1) of the values lies: linear within its bucket, never outside
        the smallest and the largest value; None without values or where its bucket has no finite bound."""
        rank, below = q * self.count, 0
        for bucket in self.buckets:
            if bucket.count and below + bucket.count >= rank:
                low = bucket.low if self.low is None else max(bucket.low, self.low)
                high = bucket.high if self.high is None else min(bucket.high, self.high)
                return _between(low, high, (rank - below) / bucket.count)
            below += bucket.count
        return None


def explicit(point: Mapping[str, Any]) -> Histogram:
    """A point with explicit bounds; its first bucket starts at minus infinity, its last one ends at infinity."""
    bounds = [-math.inf, *map(float, point.get("explicitBounds", ())), math.inf]
    counts = [int(count) for count in point.get("bucketCounts", ())]
    if counts and len(counts) != len(bounds) - 1:
        raise ValueError(f"{len(counts)} buckets do not fit {len(bounds) - 2} bounds")
    return _histogram(point, [Bucket(*bucket) for bucket in zip(bounds[:-1], bounds[1:], counts, strict=False)])


def exponential(point: Mapping[str, Any]) -> Histogram:
    """A base-2 exponential point: bucket `i` holds what is above base^i and up to base^(i+1), base = 2^(2^-scale)."""
    zero = float(point.get("zeroThreshold", 0.0))
    scale = int(point.get("scale", 0))
    negative = [Bucket(-b.high, -b.low, b.count) for b in reversed(_side(point.get("negative", {}), scale))]
    zeros = [Bucket(-zero, zero, int(point.get("zeroCount", 0)))]
    return _histogram(point, [*negative, *zeros, *_side(point.get("positive", {}), scale)])


def _side(side: Mapping[str, Any], scale: int) -> list[Bucket]:
    offset = int(side.get("offset", 0))
    counts = [int(count) for count in side.get("bucketCounts", ())]
    return [
        Bucket(_bound(offset + index, scale), _bound(offset + index + 1, scale), n) for index, n in enumerate(counts)
    ]


def _bound(index: int, scale: int) -> float:
    try:
        return math.pow(2.0, index * 2.0**-scale)
    except OverflowError:
        return math.inf


def _histogram(point: Mapping[str, Any], buckets: list[Bucket]) -> Histogram:
    total, low, high = (None if (value := point.get(key)) is None else float(value) for key in ("sum", "min", "max"))
    return Histogram(int(point.get("count", 0)), total, low, high, tuple(buckets))


def _between(low: float, high: float, share: float) -> float | None:
    if math.isinf(low) or math.isinf(high):
        finite = [bound for bound in (low, high) if not math.isinf(bound)]
        return finite[0] if finite else None
    return low + (high - low) * share
