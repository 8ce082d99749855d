"""What is a number, of all that log rows, tensors and users' functions hold."""

from __future__ import annotations

import decimal
import math
import statistics
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.numbers import are_finite, mean, number, sample_std


class Sharded:
    """As torch's DTensor: reading it would be a collective, which one process alone must never start."""

    def full_tensor(self) -> None:
        raise AssertionError("a collective was started")

    item = full_tensor


class Endless:
    def item(self) -> Endless:
        return self


class LooksUp(dict[str, float]):
    """As many a configuration's dict, which answers a missing attribute with a KeyError."""

    __getattr__ = dict.__getitem__


class Refuses:
    def item(self) -> float:
        raise KeyError("item")


class Needy:
    def item(self, index: int) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (3, 3.0),
        (0, 0.0),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (numpy.float64(2.5), 2.5),
        (numpy.float32(0.5), 0.5),
        (numpy.int64(7), 7.0),
        (numpy.array(4.0), 4.0),
        (numpy.array([[4.0]]), 4.0),
        (torch.tensor(1.25), 1.25),
        (torch.tensor([3]), 3.0),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
    ],
)
def test_numbers(value: Any, expected: float) -> None:
    found = number(value)
    assert type(found) is float
    assert found == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        numpy.bool_(True),
        torch.tensor(True),
        "1.5",
        b"1",
        [],
        [1.0],
        (1.0,),
        {"a": 1},
        {1.0},
        object(),
        int,
        1j,
        numpy.array([1.0, 2.0]),
        numpy.array([]),
        numpy.array("1"),
        numpy.datetime64("2026-01-01"),
        torch.tensor([1.0, 2.0]),
        torch.empty(0),
        torch.empty(1, device="meta"),
        torch.tensor(1j),
        Sharded(),
        Endless(),
        Needy(),
        decimal.Decimal("1.5"),
    ],
)
def test_what_is_no_number(value: Any) -> None:
    assert number(value) is None


@pytest.mark.parametrize("make", [float, numpy.float32, torch.tensor])
def test_not_finite_is_a_number_so_that_it_can_be_counted(make: Any) -> None:
    assert math.isnan(number(make(math.nan)))
    assert number(make(-math.inf)) == -math.inf


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=5,
)


@given(ANYTHING)
def test_anything_is_a_float_or_none(value: Any) -> None:
    found = number(value)
    assert found is None or type(found) is float
    assert (found is None) == (isinstance(value, bool) or not isinstance(value, (int, float)))


@given(st.integers())
def test_integers_of_any_size(value: int) -> None:
    assert number(value) == (float(value) if abs(value) < 2**1023 else math.copysign(math.inf, value))


FINITE = st.floats(-1e100, 1e100)


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_mean_and_deviation_are_the_textbook_s(values: list[float]) -> None:
    smallest = 1e-150  # whose square is a number still
    size = max(smallest, *map(abs, values))
    assert mean(values) == pytest.approx(statistics.fmean(values), abs=1e-9 * size)
    if len(values) > 1:
        assert sample_std(values) == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6 * size)
        torchs = torch.tensor(values, dtype=torch.float64).std().item()
        assert sample_std(values) == pytest.approx(torchs, rel=1e-6, abs=1e-6 * size)


def test_of_nothing_and_of_one() -> None:
    assert mean([]) is None
    assert sample_std([]) is None
    assert sample_std([3.0]) == 0.0


@pytest.mark.parametrize("values", [[math.nan, 1.0], [math.inf, 1.0], [math.inf, -math.inf], [1e308, 1e308, -1e308]])
def test_values_at_the_edge_never_raise(values: list[float]) -> None:
    assert isinstance(mean(values), float)
    assert isinstance(sample_std(values), float)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_deviations_whose_squares_are_no_numbers(size: float) -> None:
    assert sample_std([0.0, size, 2 * size]) == pytest.approx(size, rel=1e-9)


@given(st.lists(st.one_of(st.none(), st.floats(), FINITE), max_size=10))
def test_finite_is_what_each_of_them_is(values: list[float | None]) -> None:
    expected = all(value is not None and math.isfinite(value) for value in values)
    assert are_finite(values) is expected or expected  # where all are, their sum may not be


def test_finite_without_an_overflow() -> None:
    assert are_finite([])
    assert are_finite([1, 2.5, -1e100])
    assert not are_finite([1e308, 1e308])


def test_an_object_that_refuses_in_its_own_way_is_no_number() -> None:
    assert number(LooksUp(a=1.0)) is None
    assert number(Refuses()) is None
