"""Reads resource attributes that people write, in code or in `OTEL_RESOURCE_ATTRIBUTES`, and gives them the registry's
types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run import pairs
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

LONGEST_ID, LARGEST_ATTEMPT = 256, 1_000_000
INT64 = range(-(2**63), 2**63)
"""The integers that an attribute can carry."""
BY_NAME = {attribute.name: attribute for attribute in names.RESOURCE_ATTRIBUTES}
SHOWN = 80
"""How much of a value a warning repeats."""


def is_run_id(value: Any) -> TypeGuard[str]:
    """Whether a value can name a run. People read the ID, type it into queries and find the run's folder by it, so it
    has to be visible."""
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_ID
        and value.isprintable()
        and any(character.isalnum() for character in value)
    )


def is_attempt(value: Any) -> TypeGuard[int]:
    """Whether a value can be the number of an attempt."""
    return type(value) is int and 0 < value <= LARGEST_ATTEMPT


USABLE: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    names.ATTR_RUN_ID.name: (is_run_id, f"an ID (at most {LONGEST_ID} printable characters, with a letter or a digit)"),
    names.ATTR_RUN_ATTEMPT.name: (is_attempt, f"a whole number from 1 to {LARGEST_ATTEMPT}"),
}
"""Attributes that do not take every value of their type: the check of a value, and what it asks for in words."""
TYPES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def typed(*sources: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """The attributes of several sources in their registered types. If two sources have the same attribute, the later
    source wins. A value that cannot be used costs a warning."""
    found = ((name, _typed(name, raw)) for source in sources for name, raw in source.items())
    return {name: value for name, value in found if value is not None}


def said(attribute: Attribute, environ: Mapping[str, str], arguments: Mapping[str, Any] | None = None) -> Any:
    """The value that the user gives an attribute, in code or else in `OTEL_RESOURCE_ATTRIBUTES`. None if there is no
    usable one."""
    given = ((arguments or {}).get(attribute.name), otel_resource_attributes(environ).get(attribute.name))
    return next((value for raw in given if (value := converted(attribute, raw)) is not None), None)


def otel_resource_attributes(environ: Mapping[str, str]) -> dict[str, str]:
    """The variable's pairs. The SDK warns of anything in it that is no pair. `OTEL_SERVICE_NAME` wins over a service
    name in it, as the specification says."""
    found = pairs.parsed(environ.get(pairs.ATTRIBUTES, ""))
    if environ.get("OTEL_SERVICE_NAME"):
        found.pop(names.ATTR_SERVICE_NAME.name, None)
    return found


def converted(attribute: Attribute | None, raw: Any) -> AttributeValue | None:
    """The value in the attribute's type, or as text if there is no attribute. None if it is empty or the attribute
    cannot have it."""
    if raw is None or raw == "":
        return None
    if attribute is None or attribute.type is str:
        value: AttributeValue | None = _text(raw)
    else:
        value = {int: whole_number, float: _float, bool: _bool}[attribute.type](raw)
    usable, _ = USABLE.get(attribute.name if attribute else "", (None, ""))
    return value if value is None or usable is None or usable(value) else None


def whole_number(raw: Any) -> int | None:
    """The value as an integer that an attribute can carry. None if it is no such number."""
    value = _float(raw)
    return int(value) if value is not None and value.is_integer() and int(value) in INT64 else None


def _typed(name: str, raw: Any) -> AttributeValue | None:
    """The value in its registered type. None, with a warning, if it cannot be used."""
    attribute = BY_NAME.get(name)
    if attribute is None and (isinstance(raw, (float, bool)) or (isinstance(raw, int) and raw in INT64)):
        return raw
    value = converted(attribute, raw)
    if value is None and attribute is not None and raw is not None and raw != "":
        _, what = USABLE.get(name, (None, TYPES[attribute.type]))
        logger.warning("the resource attribute %s=%.*r is not %s; it is ignored", name, SHOWN, raw, what)
    return value


def _text(raw: Any) -> str | None:
    """The value as text. None if it is blank, which nobody could see."""
    text = str(raw).encode(errors="replace").decode()  # what is no UTF-8 in the environment cannot be sent
    return text if text.strip() else None


def _float(raw: Any) -> float | None:
    if isinstance(raw, bool):
        return None
    try:
        value = float(raw)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) < float("inf") else None


def _bool(raw: Any) -> bool | None:
    return {"true": True, "false": False}.get(str(raw).strip().lower())
