"""A hash of a run's settings, by which runs with equal settings are found."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from akka_otel_callbacks.common.numbers import number

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""An object's address in its repr, which differs from run to run."""


def settings_sha(settings: Mapping[str, Any]) -> str:
    """A hash of hyperparameters in 16 digits: equal for equal settings in any order, different for any changed
    value."""
    canonical = json.dumps(_canonical(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_canonical(item) for item in value), key=repr)
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _canonical(getattr(value, item.name, None)) for item in fields(value)}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 and 1 are the same setting
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    scalar = number(value)  # numpy's and torch's
    return ADDRESS.sub("", repr(value)) if scalar is None else _canonical(scalar)
