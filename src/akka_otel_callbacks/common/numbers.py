"""One place that decides what a number is, for values that come from log rows, tensors and users' own functions."""

from __future__ import annotations

import math
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
    """The arithmetic mean. None without values."""
    return sum(values) / len(values) if values else None


def are_finite(values: Sequence[float | None]) -> bool:
    """Whether all values are finite numbers. It looks at their sum, which takes a twentieth of the time that a look at
    each value takes. False also where the sum overflows."""
    try:
        return math.isfinite(sum(values))  # type: ignore[arg-type]
    except TypeError:  # one is None
        return False


def sample_std(values: Sequence[float]) -> float | None:
    """The standard deviation with Bessel's correction (n - 1), as TRL and torch give it. It is 0 for a single value,
    and None without values."""
    if len(values) < 2:
        return 0.0 if values else None
    center = sum(values) / len(values)
    # The distance neither overflows nor vanishes where the squares of the deviations would.
    return math.dist(values, [center] * len(values)) / math.sqrt(len(values) - 1)
