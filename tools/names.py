"""The words of `common/names.py`: constants, classes and literals."""

from __future__ import annotations

from collections.abc import Callable

from tools.model import Attribute, Enumeration, constant


def class_name(name: str) -> str:
    """The Python class of an attribute's well-known values: `sft.step.phase` is `SftStepPhase`."""
    return constant(name).title().replace("_", "")


def members(attribute: Attribute) -> dict[str, str]:
    """An attribute's well-known values, by their constant."""
    if isinstance(attribute.type, Enumeration):
        return {member.id.upper(): member.value for member in attribute.type.members}
    return {value.upper().replace("-", "_"): value for value in attribute.values}


def literal(value: str | float) -> str:
    """A Python literal. A bound of a histogram stays a float: a scrape shows it as it is written here, `le="1.0"`."""
    return repr(value)


FILTERS: dict[str, Callable[..., object]] = {
    "class_name": class_name,
    "constant": constant,
    "literal": literal,
    "members": members,
}
