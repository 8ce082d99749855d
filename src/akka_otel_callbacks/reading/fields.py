"""Fields of a parsed OTLP/JSON document, of which nothing is believed: anybody may have written the file.

As protobuf's JSON has it, null and a missing field are the default, and a number may stand in quotes. Whatever else
does not have the field's type raises `Malformed`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

MALFORMED = (ValueError, TypeError, RecursionError)
"""What a line that is no OTLP document raises while it is read."""
INT32 = range(-(2**31), 2**31)
UINT64 = range(2**64)
INTEGER = re.compile(r"-?[0-9]{1,20}")


class Malformed(ValueError):
    """A document that is no OTLP document."""


def mappings(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    items = _list(holder, name)
    if not {*map(type, items)} <= {dict}:
        raise Malformed(f"{name} has what is no dict")
    return iter(items)


def mapping(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if type(value) is dict else {} if value is None else _typed(value, dict, name)


def text(holder: Mapping[str, Any], name: str) -> str:
    value = holder.get(name)
    return value if type(value) is str else "" if value is None else _typed(value, str, name)


def real(holder: Mapping[str, Any], name: str) -> float | None:
    """A double, None where there is none. NaN and the infinities are written as text."""
    value = holder.get(name)
    return value if value is None or type(value) is float else _real(value, name)


def reals(holder: Mapping[str, Any], name: str) -> list[float]:
    return [_real(item, name) for item in _list(holder, name)]


def whole(holder: Mapping[str, Any], name: str, within: range = UINT64) -> int:
    """An integer, 0 where there is none."""
    value = holder.get(name)
    return 0 if value is None else _whole(value, name, within)


def counts(holder: Mapping[str, Any], name: str) -> array[int]:
    """Unsigned integers of 64 bits."""
    items = _list(holder, name)
    try:
        if "".join(items).isdecimal():  # all in quotes, as almost every producer writes them: in one go
            return array("Q", map(int, items))
    except (TypeError, ValueError, OverflowError):
        pass  # one of them is something else, which may be right
    return array("Q", [_whole(item, name, UINT64) for item in items])


def _list(holder: Mapping[str, Any], name: str) -> list[Any]:
    value = holder.get(name)
    return [] if value is None else _typed(value, list, name)


def _real(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Malformed(f"{name} is no number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise Malformed(f"{name} is no number") from error


def _whole(value: Any, name: str, within: range) -> int:
    if isinstance(value, str) and INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value not in within:
        raise Malformed(f"{name} is no integer that fits")
    return value


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise Malformed(f"{name} is no {kind.__name__}")
    return value
