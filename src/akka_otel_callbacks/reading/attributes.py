"""Attributes of anything in an OTLP document, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.reading import fields

Labels = tuple[tuple[str, str], ...]


def labels(holder: Mapping[str, Any]) -> Labels:
    """The attributes of a resource, a point or a span by key, sorted. A value that is null is empty."""
    if not holder.get("attributes"):
        return ()
    pairs = (
        (fields.text(pair, "key"), _text(fields.mapping(pair, "value")))
        for pair in fields.mappings(holder, "attributes")
    )
    return tuple(sorted(pairs))


def _text(value: Mapping[str, Any]) -> str:
    """A value; of a list its items, with commas."""
    items = value.get("arrayValue")
    if items is None:
        return ", ".join(map(str, value.values()))
    of_list = fields.mappings(fields.mapping(value, "arrayValue"), "values")
    return ", ".join(str(one) for item in of_list for one in item.values())
