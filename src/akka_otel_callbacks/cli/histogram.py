"""One histogram point of an OTLP document, explicit or exponential, and the quantiles its buckets can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from akka_otel_callbacks.cli import fields

SCALES = range(-32, 33)
"""More than the specification's -10 to 20."""


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
        """None where values were negative: what counts them in the lowest bucket does not add them up."""
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


def explicit(point: Mapping[str, Any]) -> Histogram:
    """A point with explicit bounds; its first bucket starts at minus infinity, its last one ends at infinity."""
    bounds, counts = fields.reals(point, "explicitBounds"), fields.wholes(point, "bucketCounts")
    if counts and len(counts) != len(bounds) + 1:
        raise fields.Malformed(f"{len(counts)} buckets do not fit {len(bounds)} bounds")
    edges = [-math.inf, *bounds, math.inf]
    if not all(low < high for low, high in pairwise(edges)):
        raise fields.Malformed("the bounds do not ascend")
    return _histogram(point, [Bucket(*bucket) for bucket in zip(edges, edges[1:], counts, strict=False)])


def exponential(point: Mapping[str, Any]) -> Histogram:
    """A point with base-2 exponential buckets: negative values, those near zero, positive values."""
    scale = fields.whole(point, "scale", SCALES)
    positive, negative = (_side(fields.mapping(point, side), scale) for side in ("positive", "negative"))
    zero = fields.real(point, "zeroThreshold") or 0.0
    buckets = [Bucket(-bucket.high, -bucket.low, bucket.count) for bucket in reversed(negative)]
    # A smallest value that no negative bucket holds was counted here, as our own histograms have it.
    holds_negatives = not buckets and (fields.real(point, "min") or 0) < 0
    zeros = Bucket(-math.inf if holds_negatives else -zero, zero, fields.whole(point, "zeroCount"))
    return _histogram(point, [*buckets, zeros, *positive])


def _side(side: Mapping[str, Any], scale: int) -> list[Bucket]:
    offset = fields.whole(side, "offset", fields.INT32)
    return [
        Bucket(_bound(index, scale), _bound(index + 1, scale), count)
        for index, count in enumerate(fields.wholes(side, "bucketCounts"), offset)
    ]


def _bound(index: int, scale: int) -> float:
    try:
        return math.pow(2.0, index * 2.0**-scale)
    except OverflowError:
        return math.inf


def _histogram(point: Mapping[str, Any], buckets: list[Bucket]) -> Histogram:
    total, low, high = (fields.real(point, name) for name in ("sum", "min", "max"))
    return Histogram(fields.whole(point, "count"), total, low, high, tuple(buckets))
