"""Quantiles from buckets, against the values that the SDK put into them."""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.reading.fields import Malformed
from akka_otel_callbacks.reading.histogram import Histogram, explicit, exponential
from tests.support.recordings import session

BOUNDS = [0.0, 0.1, 0.5, 1.0, 2.0, 5.0]
VALUES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=1, max_size=60)
QUANTILES = st.floats(0, 1)


def _recorded(name: str, values: list[float]) -> dict:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        with session(path) as recording:
            histogram = recording.meter.create_histogram(name, explicit_bucket_boundaries_advisory=BOUNDS)
            for value in values:
                histogram.record(value)
            recording.export()
        (metric,) = json.loads(path.read_text())["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    kind = "exponentialHistogram" if "exponential" in name else "histogram"
    return metric[kind]["dataPoints"][0]


def _check(histogram: Histogram, values: list[float], q: float) -> tuple[float, float]:
    """What holds for any histogram; returns the estimate and the true quantile."""
    assert histogram.count == len(values) == sum(bucket.count for bucket in histogram.buckets)
    assert histogram.mean == pytest.approx(sum(values) / len(values))
    estimate = histogram.quantile(q)
    assert estimate is not None
    assert min(values) <= estimate <= max(values)
    return estimate, sorted(values)[max(-int(-q * len(values) // 1), 1) - 1]  # nearest rank


@settings(deadline=None)  # it writes a file
@given(VALUES, QUANTILES)
def test_an_explicit_quantile_lies_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    estimate, true = _check(explicit(_recorded("explicit", values)), values, q)
    bucket = bisect_left(BOUNDS, true)
    low, high = [float("-inf"), *BOUNDS][bucket], [*BOUNDS, float("inf")][bucket]
    assert low <= estimate <= high


@settings(deadline=None)  # it writes a file
@given(VALUES, QUANTILES)
def test_an_exponential_quantile_is_as_close_as_its_buckets(values: list[float], q: float) -> None:
    point = _recorded("exponential", values)
    estimate, true = _check(exponential(point), values, q)
    base = 2 ** (2 ** -int(point.get("scale", 0)))
    assert true / base <= estimate * (1 + 1e-9)
    assert estimate <= true * base * (1 + 1e-9)


def test_the_median_is_interpolated_within_its_bucket() -> None:
    point = {"count": "4", "sum": 3.0, "explicitBounds": [0.0, 1.0, 2.0], "bucketCounts": ["0", "2", "2", "0"]}
    histogram = explicit(point)
    assert [histogram.quantile(q) for q in (0.25, 0.5, 0.75, 1.0)] == [0.5, 1.0, 1.5, 2.0]
    assert histogram.mean == 0.75


def test_what_a_point_does_not_have_stays_unknown() -> None:
    nothing = explicit({})
    assert (nothing.count, nothing.mean, nothing.quantile(0.5)) == (0, None, None)
    open_ended = explicit({"count": "1", "bucketCounts": ["1"]})  # no bounds, no minimum, no maximum
    assert open_ended.quantile(0.5) is None
    above = explicit({"count": "1", "explicitBounds": [2.0], "bucketCounts": ["0", "1"]})
    assert above.quantile(0.5) is None  # all that is known: not below 2


def test_negative_values_of_an_exponential_histogram_come_first() -> None:
    side = {"offset": 0, "bucketCounts": ["1"]}  # scale 0, index 0: above 1 and up to 2
    histogram = exponential({"count": "3", "zeroCount": "1", "positive": side, "negative": side})
    assert [(bucket.low, bucket.high) for bucket in histogram.buckets] == [(-2, -1), (0, 0), (1, 2)]
    assert histogram.quantile(0.5) == 0


def test_buckets_that_do_not_fit_their_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        explicit({"count": "1", "explicitBounds": [1.0, 2.0], "bucketCounts": ["1"]})


@given(
    st.lists(st.floats(-3, 5, allow_subnormal=False), min_size=1, max_size=40).filter(lambda values: min(values) < 0),
    QUANTILES,
    st.booleans(),
)
def test_negative_values_leave_no_mean_and_no_quantile_of_their_bucket(values: list, q: float, of_zeros: bool) -> None:
    """Counted as our histograms do: in the lowest bucket, with their true minimum; a sum is never believed."""
    lowest = [value for value in values if value <= 0]
    point = {
        "count": len(values),
        "min": min(values),
        "max": max(values),
        "sum": sum(max(value, 0) for value in values),
    }
    if of_zeros:
        small = sum(0 < value <= 1 for value in values)  # scale -11: up to 1, and above
        above = {"offset": -1, "bucketCounts": [small, len(values) - len(lowest) - small]}
        histogram = exponential({**point, "scale": -11, "zeroCount": len(lowest), "positive": above})
    else:
        counts = [len(lowest), len(values) - len(lowest)]
        histogram = explicit({**point, "explicitBounds": [0.0], "bucketCounts": counts})
    assert histogram.mean is None
    estimate, rank = histogram.quantile(q), q * len(values)
    if rank <= len(lowest):
        assert estimate is None
    else:
        assert estimate is not None
        assert 0 < estimate <= max(values)


def test_a_histogram_of_zeros_is_zero() -> None:
    point = {"count": "3", "sum": 0.0, "min": 0.0, "max": 0.0}
    for histogram in (
        explicit({**point, "explicitBounds": [0.0, 1.0], "bucketCounts": ["3", "0", "0"]}),
        exponential({**point, "zeroCount": "3"}),
    ):
        assert (histogram.mean, histogram.quantile(0.1), histogram.quantile(0.9)) == (0, 0, 0)


@pytest.mark.parametrize(
    "point",
    [
        {"count": 10**309},
        {"count": -1},
        {"count": True},
        {"count": 1.5},
        {"count": "many"},
        {"sum": [1]},
        {"sum": 10**400},
        {"min": "low"},
        {"bucketCounts": "11"},
        {"bucketCounts": [1, 2**64], "explicitBounds": [0]},
        {"bucketCounts": [1, 1, 1], "explicitBounds": [1, 0]},
        {"bucketCounts": [1, 1, 1], "explicitBounds": [0, "NaN"]},
    ],
    ids=str,
)
def test_what_is_no_histogram_is_refused(point: dict) -> None:
    with pytest.raises(Malformed):
        explicit(point)


@pytest.mark.parametrize(
    "point",
    [
        {"scale": -(10**9)},
        {"scale": "x"},
        {"zeroCount": -1},
        {"positive": []},
        {"positive": {"offset": 2**40, "bucketCounts": [1]}},
        {"negative": {"bucketCounts": [None]}},
    ],
    ids=str,
)
def test_what_is_no_exponential_histogram_is_refused(point: dict) -> None:
    with pytest.raises(Malformed):
        exponential(point)


def test_the_widest_buckets_have_no_figures_that_overflow() -> None:
    side = {"offset": 2**31 - 2, "bucketCounts": [1]}
    histogram = exponential({"count": 2, "scale": -32, "positive": side, "negative": side})
    assert histogram.quantile(0.5) is None
