"""What a checkpoint operation is about: two attributes of its figures, and the exact identities on its span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

LABELS: Mapping[str, Attribute] = {
    "artifact_kind": names.ATTR_CHECKPOINT_ARTIFACT_KIND,
    "storage_mode": names.ATTR_CHECKPOINT_STORAGE_MODE,
}
IDENTITIES: Mapping[str, Attribute] = {
    "snapshot_id": names.ATTR_CHECKPOINT_SNAPSHOT_ID,
    "restore_mode": names.ATTR_CHECKPOINT_RESTORE_MODE,
    "source_run_id": names.ATTR_CHECKPOINT_SOURCE_RUN_ID,
    "source_attempt": names.ATTR_CHECKPOINT_SOURCE_ATTEMPT,
    "source_engine_step": names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP,
}

_told: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of an operation. None stands for what is not known. A value that its attribute cannot have is left
    out, with one warning for each."""

    artifact_kind: str | None = None
    storage_mode: str | None = None
    snapshot_id: str | None = None
    restore_mode: str | None = None
    source_run_id: str | None = None
    source_attempt: int | None = None
    source_engine_step: int | None = None

    def with_more(self, **more: Any) -> Description:
        """The description with some values set anew. Raises TypeError for an argument that no operation has."""
        known = {**LABELS, **IDENTITIES}
        if unknown := more.keys() - known.keys():
            raise TypeError(f"a checkpoint operation has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
        usable = {name: usable_value(known[name], value) for name, value in more.items() if value is not None}
        return replace(self, **{name: value for name, value in usable.items() if value is not None})

    def within(self, outer: Description) -> Description:
        """The description with its gaps filled from the operation around it."""
        own = {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}
        return replace(outer, **own)

    def labels(self) -> dict[str, AttributeValue]:
        return self._attributes(LABELS)

    def attributes(self) -> dict[str, AttributeValue]:
        """All attributes, the exact identities included, as a span has them."""
        return {**self.labels(), **self.identities()}

    def identities(self) -> dict[str, AttributeValue]:
        return self._attributes(IDENTITIES)

    def _attributes(self, of: Mapping[str, Attribute]) -> dict[str, AttributeValue]:
        values = {attribute.name: getattr(self, field) for field, attribute in of.items()}
        return {name: value for name, value in values.items() if value is not None}


def usable_value(attribute: Attribute, value: Any) -> Any:
    """The value in its attribute's type. None, with one warning, where the attribute does not allow the value."""
    found = _integer(value) if attribute.type is int else _text(value)
    if found is None or (attribute.values and found not in attribute.values):
        _warn(attribute, value)
        return None
    return found


def _integer(value: Any) -> int | None:
    found = number(value)
    return int(found) if found is not None and found.is_integer() else None


def _text(value: Any) -> str | None:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object may refuse in its own way
        return None


def shown(value: Any) -> str:
    """A value as a warning names it."""
    try:
        return one_line(repr(value), 100)
    except Exception:  # noqa: BLE001 - as before
        return f"a {type(value).__name__}"


def _warn(attribute: Attribute, value: Any) -> None:
    text = shown(value)
    if (attribute.name, text) not in _told:
        _told.add((attribute.name, text))
        possible = " or ".join(attribute.values) if attribute.values else f"usable as {attribute.type.__name__}"
        logger.warning("%s=%s is left out: it is not %s", attribute.name, text, possible)
