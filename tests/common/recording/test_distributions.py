"""Counted in bulk, and equal to what the SDK makes of the same values one by one."""

from __future__ import annotations

import math
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import ExponentialHistogram as SdkExponential
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from akka_otel_callbacks.common.recording.distributions import (
    Distribution,
    Explicit,
    Exponential,
    numbers_of,
)

BOUNDS = (0.0, 0.1, 0.2, 0.5, 0.9, 0.99, 1.0, 2.0, 5.0)
SMALLEST, LARGEST = sys.float_info.min, sys.float_info.max


def explicit(values: Sequence[Any]) -> Explicit:
    return Explicit.of(numbers_of(values).finite, BOUNDS)


def exponential(values: Sequence[Any]) -> Exponential:
    return Exponential.of(numbers_of(values).finite)


def point(distribution: Distribution) -> Any:
    return distribution.point({"term": "total"}, 1, 2)


def buckets(point: Any) -> dict[int, int]:
    counts = enumerate(point.positive.bucket_counts, point.positive.offset)
    return {index: count for index, count in counts if count}


# -- the SDK, one call a value


def sdk(aggregation: Any, steps: Sequence[Sequence[float]], *, collected: bool = False) -> Any:
    """What the SDK exports at the end; `collected` exports after every step, too, so that it merges."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(
        [reader],
        views=[View(instrument_name="values", aggregation=aggregation)],
        exemplar_filter=AlwaysOffExemplarFilter(),
        shutdown_on_exit=False,
    )
    histogram = provider.get_meter("test").create_histogram("values")
    for values in steps:
        for value in values:
            histogram.record(value)
        if collected:
            reader.collect()
    data = reader.get_metrics_data()
    return data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points[0]


powers = st.integers(-1022, 1023).map(lambda exponent: math.ldexp(1.0, exponent))
near_bounds = st.sampled_from([near for bound in BOUNDS for near in (bound, bound * 1.00001, bound * 0.999)])
lengths = st.integers(0, 20_000)
values = st.one_of(
    st.floats(0, allow_infinity=False), st.floats(1e-3, 1e3), powers, near_bounds, lengths, st.just(LARGEST)
)
steps = st.lists(st.lists(values, max_size=30), min_size=1, max_size=4).filter(any)
narrow = st.lists(st.lists(st.floats(0.5, 40), min_size=1, max_size=30), min_size=1, max_size=4)


def are_off_the_bounds(steps: list[list[float]]) -> bool:
    """Or are at one of them exactly."""
    return not any(0 < value - bound < 1e-6 * bound for values in steps for value in values for bound in BOUNDS)


def merged(parts: Sequence[Distribution]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part  # type: ignore[operator]
    return total


def test_a_value_of_single_precision_is_at_the_bound_that_it_was_given() -> None:
    """0.1 is a little more in single precision, and so is the sum of 0.4, 0.4 and 0.2."""
    tenth, *weighted = struct.unpack("4f", struct.pack("4f", 0.1, 0.4, 0.4, 0.2))
    rewards = sum(weighted)
    assert tenth > 0.1
    assert rewards > 1.0
    assert explicit([tenth, rewards, 1.00001]).counts == explicit([0.1, 1.0, 1.5]).counts


@given(steps.filter(are_off_the_bounds))
def test_explicit_buckets_are_those_of_the_sdk(steps: list[list[float]]) -> None:
    ours = point(merged([explicit(values) for values in steps]))
    theirs = sdk(ExplicitBucketHistogramAggregation(BOUNDS), steps)
    assert tuple(theirs.bucket_counts) == ours.bucket_counts
    assert (theirs.count, theirs.min, theirs.max) == (ours.count, ours.min, ours.max)
    assert math.isclose(theirs.sum, ours.sum)


def beside_a_power(value: float) -> bool:
    """Next to a power of two, where the SDK's answer depends on the scale at which it meets the value."""
    mantissa, _ = math.frexp(value)
    return 0 < value != LARGEST and min(mantissa - 0.5, 1 - mantissa) < 1e-12 and mantissa != 0.5


@given(st.one_of(steps, narrow))
@example([[1.0]])
@example([[0.0, 0.0]])
@example([[0.0], [3.0]])
@example([[5e-324, SMALLEST, math.nextafter(SMALLEST, 1)]])
@example([[5e-324], [LARGEST]])
@example([[float(2**exponent) for exponent in range(30)]])
def test_exponential_buckets_are_those_of_the_sdk(steps: list[list[float]]) -> None:
    """Of all values at once, whatever the steps: each sum of distributions is the distribution of all values."""
    steps = [[value for value in values if not beside_a_power(value)] for values in steps]
    if not any(steps):
        return
    theirs = sdk(ExponentialBucketHistogramAggregation(), steps)
    for ours in (
        point(merged([exponential(values) for values in steps])),
        point(merged([exponential(values) for values in reversed(steps)])),
        point(exponential([value for values in steps for value in values])),
    ):
        assert (theirs.scale, theirs.zero_count, buckets(theirs)) == (ours.scale, ours.zero_count, buckets(ours))
        assert (theirs.count, theirs.min, theirs.max) == (ours.count, ours.min, ours.max)
        assert math.isclose(theirs.sum, ours.sum)
        assert len(ours.positive.bucket_counts) <= 160


@given(st.lists(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=20), min_size=2, max_size=4))
def test_sums_of_steps_are_those_of_the_sdk_that_exports_between_them(steps: list[list[float]]) -> None:
    steps = [[value for value in values if not beside_a_power(value)] or [3.0] for values in steps]
    theirs = sdk(ExponentialBucketHistogramAggregation(), steps, collected=True)
    ours = point(merged([exponential(values) for values in steps]))
    assert (theirs.scale, buckets(theirs), theirs.count) == (ours.scale, buckets(ours), ours.count)


@given(st.lists(lengths))
def test_every_value_is_in_the_bucket_that_holds_it(values: list[int]) -> None:
    """In whole numbers: with base = 2^(2^-scale), base^i < value <= base^(i + 1) where 2^i < value^(2^scale) <=
    2^(i + 1)."""
    values = [1, 20_000, *filter(None, values)]
    found = point(exponential(values))
    assert found.scale == 3
    assert buckets(found) == Counter((value ** (2**found.scale) - 1).bit_length() - 1 for value in values)


def test_a_power_of_two_is_the_upper_bound_of_its_bucket() -> None:
    found = point(exponential([4.0, math.nextafter(4.0, 5)]))
    assert found.scale == 20
    assert buckets(found) == {(2 << 20) - 1: 1, 2 << 20: 1}


# -- what a value may be


@pytest.mark.parametrize("count", [explicit, exponential])
def test_a_negative_value_is_counted_lowest_and_takes_the_sum_away(count: Any) -> None:
    before, after = count([0.5, 1.0]), count([-2.0, 0.25])
    assert point(before).sum == 1.5
    for found in (after, before + after, before + after + before):
        assert point(found).sum is None
        assert point(found).min == -2.0
        assert found.summary.negative == 1
    both = point(before + after)
    assert (both.count, both.max) == (4, 1.0)
    lowest = both.bucket_counts[0] if count is explicit else both.zero_count
    assert lowest == 1


@given(st.lists(st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3))))
@example([10**400, -(10**400), True, 1, 1.0, LARGEST, LARGEST])
def test_what_is_no_number_is_left_out_and_what_is_not_finite_is_counted(values: list[Any]) -> None:
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    finite = [value for value in numbers if abs(value) <= LARGEST]
    found = numbers_of(values)
    assert [*found.finite] == [*map(float, finite)]
    assert found.nonfinite == len(numbers) - len(finite)


def test_values_of_arrays_count_too() -> None:
    numpy = pytest.importorskip("numpy")
    found = numbers_of([numpy.float32(0.5), numpy.float64(0.5), numpy.int64(2), numpy.float64("nan")])
    assert found == ([0.5, 0.5, 2.0], 1)


def test_nothing_has_no_count() -> None:
    for nothing in (explicit([]), exponential([])):
        assert nothing.summary.count == 0
        assert nothing + nothing == nothing  # type: ignore[operator]


# -- on the wire


def encoded(distribution: Distribution) -> dict[str, Any]:
    kind = SdkHistogram if isinstance(distribution, Explicit) else SdkExponential
    metric = SdkMetric("values", "", "1", kind([point(distribution)], AggregationTemporality.CUMULATIVE))
    scope = ScopeMetrics(InstrumentationScope("test"), [metric], "")
    request = encode_metrics(MetricsData([ResourceMetrics(Resource({}), [scope], "")]))
    written = MessageToDict(type(request).FromString(request.SerializeToString()))
    (found,) = written["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    ((of_kind,),) = [[found[key] for key in ("histogram", "exponentialHistogram") if key in found]]
    return of_kind["dataPoints"][0]


@pytest.mark.parametrize("count", [explicit, exponential])
def test_otlp_carries_the_point_and_leaves_an_absent_sum_out(count: Any) -> None:
    whole = encoded(count([0.5, 3.0]))
    assert (whole["sum"], whole["min"], whole["max"], whole["count"]) == (3.5, 0.5, 3.0, "2")
    without = encoded(count([-0.5, 3.0]))
    assert "sum" not in without
    assert (without["min"], without["max"], without["count"]) == (-0.5, 3.0, "2")
