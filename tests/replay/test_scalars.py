"""Numbers as text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.replay.scalars import scalar, with_numbers


@given(st.floats() | st.integers())
def test_every_number_that_python_numpy_and_torch_print_is_read(value: float) -> None:
    for text, expected in (
        (repr(value), float(value)),
        (repr(np.float64(value)), float(value)),
        (f"tensor({value!r}, device='cuda:0', grad_fn=<MeanBackward0>)", float(value)),
        (f" {value!r}\t", float(value)),
    ):
        assert scalar(text) == pytest.approx(expected, rel=0, nan_ok=True), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (repr(np.float32(0.25)), 0.25),
        (repr(np.int64(-3)), -3),
        (repr(torch.tensor(2)), 2),
        (repr(torch.tensor(1.0)), 1),
        ("array(1.5, dtype=float32)", 1.5),
        ("1,234.5", 1234.5),
        ("-1,234,567", -1234567),
        ("Infinity", math.inf),
        (".5", 0.5),
        ("5.", 5),
    ],
)
def test_other_forms(text: str, expected: float) -> None:
    assert scalar(text) == expected


@pytest.mark.parametrize(
    "text", ["1,234", "0,123", "1_000", "True", "", "-", "1.2.3", "0x10", "tensor([1., 2.])", "12 s"]
)
def test_what_has_two_meanings_or_none_is_no_number(text: str) -> None:
    assert scalar(text) is None


@given(st.text())
def test_any_text_is_a_number_or_none(text: str) -> None:
    found = scalar(text)
    assert found is None or isinstance(found, float)


def test_numbers_among_a_rows_values() -> None:
    values = {"loss": "np.float64(0.5)", "name": "run 5", "step": 3, "list": ["1"], "nothing": None}
    assert with_numbers(values) == {**values, "loss": 0.5}
