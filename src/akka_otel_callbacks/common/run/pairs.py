"""Reads the pairs in `OTEL_RESOURCE_ATTRIBUTES`. It imports nothing heavy."""

from __future__ import annotations

from urllib.parse import unquote

ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"


def parsed(pairs: str) -> dict[str, str]:
    """Names and values of `name=value,name=value`. Values are percent-decoded and names are not, as the SDK, which puts
    the variable's attributes on every resource, does it. Anything that is no pair is left out."""
    split = (pair.partition("=") for pair in pairs.split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in split if name.strip()}
