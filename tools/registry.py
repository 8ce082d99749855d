"""The whole registry: read from its files, and every rule checked that a single mapping cannot check by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tools.model import Attribute, AttributeGroup, Entity, Enumeration, Event, File, Group, Metric, Span, constant

MANIFEST = "manifest.yaml"
LISTS = ("groups", "attributes", "members")
UNIT = re.compile(r"1|s|By|Hz|W|J|Cel|\{[a-z]+\}(/s)?")
G = TypeVar("G", AttributeGroup, Metric, Entity, Span, Event)
FRACTION = ("Share of ", "Fraction of ")
STANDARD = "hw."
"""Metrics of OpenTelemetry's conventions have the units that those say."""


class RegistryError(Exception):
    """The registry breaks a rule; `problems` has one line for each, as `file: group: what is wrong`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Registry:
    """All groups, by the file that they stand in, in the order of the files."""

    files: dict[str, tuple[Group, ...]]

    def _all(self, kind: type[G]) -> list[G]:
        return [group for groups in self.files.values() for group in groups if isinstance(group, kind)]

    @property
    def metrics(self) -> list[Metric]:
        return self._all(Metric)

    @property
    def spans(self) -> list[Span]:
        return self._all(Span)

    @property
    def events(self) -> list[Event]:
        return self._all(Event)

    @property
    def entities(self) -> list[Entity]:
        return self._all(Entity)

    @property
    def attribute_groups(self) -> list[AttributeGroup]:
        return self._all(AttributeGroup)

    @property
    def attributes(self) -> dict[str, Attribute]:
        return {attribute.id: attribute for group in self.attribute_groups for attribute in group.attributes}

    @property
    def promoted(self) -> list[Attribute]:
        """The attributes of the resource that become labels of every series in Prometheus, in the resource's order."""
        attributes = self.attributes
        used = [attributes[use.ref] for entity in self.entities for use in entity.attributes if use.ref in attributes]
        return [attribute for attribute in used if attribute.annotations.akka.promoted]


def load(directory: Path) -> Registry:
    """Read and check the registry.

    Raises:
        RegistryError: with every problem found, not only the first.
    """
    files, problems = {}, []
    for path in sorted(directory.glob("*.yaml")):
        if path.name == MANIFEST:
            continue
        try:
            files[path.name] = _read(path)
        except RegistryError as error:
            problems += error.problems
    if not files and not problems:
        problems = [f"{directory}: there is no *.yaml file with `groups:` in it"]
    if not problems:
        problems = list(check(Registry(files)))
    if problems:
        raise RegistryError(problems)
    return Registry(files)


def _read(path: Path) -> tuple[Group, ...]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RegistryError([f"{path.name}: not YAML: {' '.join(str(error).split())}"]) from error
    try:
        return File.model_validate(document).groups
    except ValidationError as error:
        raise RegistryError([_explain(path.name, document, problem) for problem in error.errors()]) from error


def _explain(file: str, document: Any, problem: ErrorDetails) -> str:
    """One line for one of pydantic's problems, with IDs in the place of positions."""
    words, node = [file], document
    for part in problem["loc"]:
        if isinstance(node, list) and isinstance(part, int):
            node = node[part]
            words.append(str(node.get("id", part)) if isinstance(node, dict) else str(part))
        elif isinstance(node, dict) and part in node:
            node = node[part]
            words += [str(part)] if part not in LISTS else []
    if problem["type"] == "missing":
        words.append(str(problem["loc"][-1]))
    given = "" if isinstance(problem["input"], dict | list) else f", not {problem['input']!r}"
    return ": ".join([*words, problem["msg"].removeprefix("Value error, ") + given])


def check(registry: Registry) -> Iterator[str]:
    """Every rule across groups that is broken, as `file: group: what is wrong`."""
    attributes = registry.attributes
    yield from _duplicates(registry)
    yield from _promoted_without_resource(registry)
    for file, groups in registry.files.items():
        for group in groups:
            for problem in _check_group(group, attributes):
                yield f"{file}: {group.id}: {problem}"


def _duplicates(registry: Registry) -> Iterator[str]:
    defined = [attribute.id for group in registry.attribute_groups for attribute in group.attributes]
    spaces = {
        "group ID": [group.id for groups in registry.files.values() for group in groups],
        "metric": [constant(metric.name) for metric in registry.metrics],
        "attribute": [constant(name) for name in defined],
        "event": [constant(event.name) for event in registry.events],
        "span": [constant(span.id.removeprefix("span.")) for span in registry.spans],
    }
    for what, names in spaces.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield f"registry: the {what} {name} is defined {count} times; a name is defined once"


def _promoted_without_resource(registry: Registry) -> Iterator[str]:
    on_resource = {attribute.id for attribute in registry.promoted}
    for attribute in registry.attributes.values():
        if attribute.annotations.akka.promoted and attribute.id not in on_resource:
            yield f"registry: {attribute.id}: promoted is for attributes of the resource, and no entity has this one"


def _check_group(group: Group, attributes: dict[str, Attribute]) -> Iterator[str]:
    if isinstance(group, AttributeGroup):
        for attribute in group.attributes:
            yield from _check_attribute(attribute)
        return
    refs = [reference.ref for reference in group.attributes]
    for ref in refs:
        if ref not in attributes:
            yield f"refers to the attribute {ref}, which no attribute group defines"
    for ref, count in Counter(refs).items():
        if count > 1:
            yield f"refers to the attribute {ref} {count} times"
    if isinstance(group, Metric):
        yield from _check_metric(group, attributes)
    elif isinstance(group, (Entity, Event)):
        if group.id != f"{group.type}.{group.name}":
            yield f"the ID must be {group.type}.{group.name}"
    elif group.one_per is not None and (group.one_per not in refs or group.id != f"span.{group.one_per}"):
        yield f"one_per {group.one_per} must be one of its attributes, and the ID must be span.{group.one_per}"


def _check_attribute(attribute: Attribute) -> Iterator[str]:
    if isinstance(attribute.type, Enumeration):
        for what in ("id", "value"):
            for name, count in Counter(getattr(member, what) for member in attribute.type.members).items():
                if count > 1:
                    yield f"{attribute.id}: the member {what} {name} stands there {count} times"
        if attribute.annotations.akka.well_known:
            yield f"{attribute.id}: an enum's values are its members; well_known is for type string"
        if attribute.examples:
            yield f"{attribute.id}: an enum's members are its examples"
        return
    if attribute.annotations.akka.well_known and attribute.type != "string":
        yield f"{attribute.id}: well_known is for type string, not {attribute.type}"
    for example in attribute.examples:
        if type(example) is not attribute.python_type:
            yield f"{attribute.id}: the example {example!r} is not of type {attribute.type}"
    if not attribute.examples and attribute.type != "boolean":
        yield f"{attribute.id}: needs examples, being of type {attribute.type}"


def _check_metric(metric: Metric, attributes: dict[str, Attribute]) -> Iterator[str]:
    extras = metric.extras
    if metric.id != f"metric.{metric.name}":
        yield f"the ID must be metric.{metric.name}"
    if not UNIT.fullmatch(metric.unit):
        yield f"the unit {metric.unit!r} is neither a known UCUM unit nor an annotation such as {{step}} or {{token}}/s"
    if metric.unit == "1" and metric.kind != "gauge" and not metric.name.startswith(STANDARD):
        yield f"a {metric.kind} must not have the unit 1; count things, such as {{step}}"
    if metric.unit == "1" and metric.kind == "gauge" and not metric.brief.startswith(FRACTION):
        yield "the unit 1 is for fractions: begin the brief with “Share of” or “Fraction of”, or use another unit"
    if metric.kind == "histogram":
        if bool(extras.buckets) == extras.exponential:
            yield "a histogram has either buckets or exponential: true"
        if any(low >= high for low, high in zip(extras.buckets, extras.buckets[1:], strict=False)):
            yield "the buckets must rise"
    elif extras.buckets or extras.exponential:
        yield f"buckets and exponential are for histograms, not for a {metric.kind}"
    if extras.sticky and metric.kind != "gauge":
        yield f"sticky is for gauges, not for a {metric.kind}"
    if isinstance(extras.sticky, tuple):
        known = {value for ref in metric.attributes if ref.ref in attributes for value in attributes[ref.ref].values}
        for value in extras.sticky:
            if value not in known:
                yield f"sticky value {value!r} is no well-known value of one of its attributes"
