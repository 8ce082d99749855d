"""The rules by which samples become a figure, against arithmetic written out here."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.gpu.windows import Bits, Growth, Latest, Mean

samples = st.lists(st.none() | st.integers(0, 2**40), max_size=30)
windows = st.lists(samples, max_size=6)


@given(windows)
def test_a_mean_is_of_the_samples_since_the_last_export(exports: list[list[int | None]]) -> None:
    window, before = Mean(), None
    for values in exports:
        for value in values:
            window.add(value)
        known = [value for value in values if value is not None]
        if values:
            before = math.fsum(known) / len(known) if known else None
        assert window.take() == (pytest.approx(before) if before is not None else None)


@given(windows)
def test_bits_are_those_of_every_sample_since_the_last_export(exports: list[list[int | None]]) -> None:
    window, before = Bits(), None
    for values in exports:
        for value in values:
            window.add(value)
        if values:
            known = [value for value in values if value is not None]
            before = sum(1 << bit for bit in range(41) if any(value >> bit & 1 for value in known)) if known else None
        assert window.take() == before


@given(samples)
def test_the_latest_is_the_last_sample_even_if_it_has_no_value(values: list[int | None]) -> None:
    window = Latest()
    for value in values:
        window.add(value)
    assert window.take() == (values[-1] if values else None)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_growth_counts_rises_and_goes_on_after_a_reset(totals: list[int]) -> None:
    window = Growth()
    for total in totals:
        window.add(total)
        window.add(None)  # an unreadable sample counts nothing and loses nothing
    rises = [after - before if after >= before else after for before, after in pairwise(totals)]
    assert window.take() == sum(rises)
    assert window.take() == sum(rises), "an export does not reset a counter"


def test_growth_of_a_total_that_was_never_read_is_unknown() -> None:
    window = Growth()
    window.add(None)
    assert window.take() is None


@pytest.mark.parametrize("first", [7, 7.0])
def test_growth_starts_with_a_zero_of_the_totals_type(first: float) -> None:
    window = Growth()
    window.add(first)
    assert window.take() == 0
    assert type(window.take()) is type(first)
