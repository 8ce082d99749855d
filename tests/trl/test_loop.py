"""A value of a step stays what it was, whatever becomes of its tensor before it is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.trl.loop import copied


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(0.25),
        torch.tensor(0.25, dtype=torch.bfloat16),
        torch.tensor(0.25, requires_grad=True),
        torch.tensor([0.25]),
        torch.tensor(3),
    ],
    ids=["plain", "half", "with a gradient", "of one element", "whole number"],
)
def test_a_tensor_that_is_overwritten_after_the_step_changes_nothing(value: torch.Tensor) -> None:
    expected = value.item()
    kept = copied(value)
    with torch.no_grad():
        value.fill_(7)
    assert number(kept) == expected


@pytest.mark.parametrize("value", [0.25, 3, None])
def test_what_is_no_tensor_stays_itself(value: Any) -> None:
    assert copied(value) is value
