"""Numbers as text, in every way in which Python, numpy and torch print them."""

from __future__ import annotations

import re
from typing import Any

from akka_otel_callbacks.common.numbers import number

PLAIN = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|NaN|inf|Infinity)"
TYPE = r"(?:(?:np|numpy|torch|jnp)\.)?(?:float|int|uint|bfloat|double|half|tensor|array)\w*"
WRAPPED = rf"{TYPE}\(\s*(?P<inner>{PLAIN})\s*(?:,[^()]*(?:\([^()]*\)[^()]*)*)?\)"
GROUPED = r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)"
NUMBER = rf"(?:{WRAPPED}|{GROUPED}|{PLAIN})"
"""`0.5`, `1e-06`, `nan`, `np.float64(0.5)`, `tensor(0.5, device='cuda:0')`, `1,234.5`. A single comma alone, as in
`1,234`, is a thousand to some and a fraction to others, and so it is no number."""

LAST_STEP = 10**9
"""A larger number is no step's: a run of a step a second would have begun before there were computers that train."""

_WRAPPED, _GROUPED, _PLAIN = (re.compile(pattern) for pattern in (WRAPPED, GROUPED, PLAIN))


def scalar(text: str) -> float | None:
    """The number that a text is. None where it is none."""
    text = text.strip()
    if (wrapped := _WRAPPED.fullmatch(text)) is not None:
        return float(wrapped["inner"])
    if _PLAIN.fullmatch(text):
        return float(text)
    return float(text.replace(",", "")) if _GROUPED.fullmatch(text) else None


def step_number(value: Any) -> int | None:
    """The number of a step. None for what can be none."""
    found = number(value)
    return int(found) if found is not None and 0 <= found <= LAST_STEP else None


def with_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """The values, with those that are numbers written as text as numbers: what JSON cannot hold is often kept so."""
    return {
        key: found if isinstance(value, str) and (found := scalar(value)) is not None else value
        for key, value in values.items()
    }
