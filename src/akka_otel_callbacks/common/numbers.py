"""One place that decides what a number is, for values that come from log rows, tensors and users' own functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any


def number(value: Any, *, truth: bool = False) -> float | None:
    """The value as a float, or None where it is not a number.

    NaN and infinities are numbers here (the recorder counts and drops them); an integer too large for a float is an
    infinity. `None`, bool, str, containers and arrays of more than one element are not numbers. A sharded tensor
    (DTensor) is not read either, because reading it would be a collective.

    Args:
        value: anything.
        truth: whether true is 1 and false is 0, as where answers are judged.
    """
    if value.__class__ is float:
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool):
        return float(value) if truth else None
    if value is None or isinstance(value, (str, bytes)):
        return None
    if isinstance(value, (int, float)):
        return _as_float(value)
    try:
        if hasattr(value, "full_tensor") or not hasattr(value, "item"):
            return None
        return number(value.item(), truth=truth)
    except Exception:  # noqa: BLE001 - an array of several elements, a meta tensor, a dict that looks up its attributes
        return None


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean, None of nothing."""
    return sum(values) / len(values) if values else None


def sample_std(values: list[float]) -> float | None:
    """The standard deviation with Bessel's correction (n - 1), as TRL and torch give it; 0 for a single value, None
    of nothing."""
    if not values:
        return None
    if len(values) == 1:
        return 0.0
    center = sum(values) / len(values)
    deviations = [value - center for value in values]
    # A product, where a power would raise for a deviation beyond 1e154.
    return math.sqrt(sum(map(operator.mul, deviations, deviations)) / (len(values) - 1))
