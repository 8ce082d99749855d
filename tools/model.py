"""The form of a registry file: the part of OpenTelemetry's semantic-convention `groups:` that this project uses.

What OpenTelemetry has no field for stands under `annotations.akka`.
"""

from __future__ import annotations

import builtins
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

PREFIX = "akka.optimize.training."


def _sentence(text: str) -> str:
    if text != text.strip() or not text.endswith("."):
        raise ValueError("must be a sentence that ends with a full stop")
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]*$")]
Sentence = Annotated[str, AfterValidator(_sentence)]
Brief = Annotated[str, StringConstraints(max_length=90), AfterValidator(_sentence)]
PYTHON_TYPES = {"string": str, "int": int, "double": float, "boolean": bool}
Engine = Literal["trl", "verl"]
ENGINES: tuple[Engine, ...] = ("trl", "verl")
Stability = Literal["development", "alpha", "beta", "release_candidate", "stable"]


class Form(BaseModel):
    """A mapping in which an unknown key is an error, so that a misspelt one is never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Member(Form):
    """One value of an enum."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    value: str
    stability: Stability
    brief: Sentence


class Enumeration(Form):
    """The type of an attribute with well-known values."""

    members: Annotated[tuple[Member, ...], Field(min_length=1)]


class AttributeExtras(Form):
    """`annotations.akka` of an attribute.

    Attributes:
        well_known: the constants that an open set of strings deserves, by value.
        promoted: a resource attribute that becomes a label of every series in Prometheus, so that a query of one run
            needs no join.
    """

    well_known: dict[str, Sentence] = {}
    promoted: bool = False


class AttributeAnnotations(Form):
    akka: AttributeExtras = AttributeExtras()


class Attribute(Form):
    """The definition of an attribute."""

    id: Name
    type: Literal["string", "int", "double", "boolean"] | Enumeration
    stability: Stability
    brief: Sentence
    note: Sentence | None = None
    examples: tuple[str | bool | int | float, ...] = ()
    annotations: AttributeAnnotations = AttributeAnnotations()

    @property
    def wire_type(self) -> str:
        """The type that its values have on the wire."""
        return "string" if isinstance(self.type, Enumeration) else self.type

    @property
    def python_type(self) -> builtins.type:
        """The type that its values have in Python."""
        return PYTHON_TYPES[self.wire_type]

    @property
    def values(self) -> dict[str, str]:
        """What each well-known value means, by value."""
        if isinstance(self.type, Enumeration):
            return {member.value: member.brief for member in self.type.members}
        return self.annotations.akka.well_known


class Condition(Form):
    """When an attribute is there."""

    conditionally_required: str


class Reference(Form):
    """The use of a defined attribute."""

    ref: str
    requirement_level: Literal["required", "recommended", "opt_in"] | Condition | None = None

    @property
    def condition(self) -> str:
        """When the attribute is there, empty for always."""
        return self.requirement_level.conditionally_required if isinstance(self.requirement_level, Condition) else ""


class AttributeGroup(Form):
    """A group of definitions."""

    type: Literal["attribute_group"]
    id: str
    brief: Sentence
    attributes: tuple[Attribute, ...]


class MetricExtras(Form):
    """`annotations.akka` of a metric.

    Attributes:
        emitter: the process that publishes it.
        engines: with which engines a job does; with none of them, it is not emitted yet.
        observable: read at each export, so that a series ends with what it describes.
        sticky: true, or the attribute values whose latest figure stays until it is replaced.
        buckets: explicit histogram bounds.
        exponential: a histogram with base-2 exponential buckets.
    """

    emitter: Literal["job", "service"]
    engines: tuple[Engine, ...] = ENGINES
    observable: bool = False
    sticky: bool | tuple[str, ...] = False
    buckets: tuple[float, ...] = ()
    exponential: bool = False


class MetricAnnotations(Form):
    akka: MetricExtras


class Metric(Form):
    """One metric."""

    type: Literal["metric"]
    id: str
    name: Name = Field(alias="metric_name")
    kind: Literal["gauge", "counter", "updowncounter", "histogram"] = Field(alias="instrument")
    unit: str
    stability: Stability
    brief: Brief
    note: Sentence | None = None
    attributes: tuple[Reference, ...] = ()
    annotations: MetricAnnotations

    @property
    def extras(self) -> MetricExtras:
        return self.annotations.akka


class Entity(Form):
    """What the resource describes."""

    type: Literal["entity"]
    id: str
    name: Name
    stability: Stability
    brief: Sentence
    note: Sentence | None = None
    attributes: tuple[Reference, ...]


class SpanExtras(Form):
    """`annotations.akka` of a span.

    Attributes:
        one_per: the attribute for each of whose values there is one span, named after the value.
        engines: as of a metric.
    """

    one_per: str | None = None
    engines: tuple[Engine, ...] = ENGINES


class SpanAnnotations(Form):
    akka: SpanExtras = SpanExtras()


class Span(Form):
    """One span, or one family of them."""

    type: Literal["span"]
    id: Annotated[str, StringConstraints(pattern=r"^span\.[a-z][a-z0-9_.]*$")]
    span_kind: Literal["internal", "client", "server", "producer", "consumer"]
    stability: Stability
    brief: Sentence
    note: Sentence | None = None
    attributes: tuple[Reference, ...] = ()
    annotations: SpanAnnotations = SpanAnnotations()

    @property
    def one_per(self) -> str | None:
        return self.annotations.akka.one_per

    @property
    def engines(self) -> tuple[Engine, ...]:
        return self.annotations.akka.engines

    @property
    def name(self) -> str:
        """The span's name; of a family, the part that all names begin with."""
        name = self.id.removeprefix("span.")
        return name.rpartition(".")[0] if self.one_per else name


class Event(Form):
    """What a log record with a name of its own says."""

    type: Literal["event"]
    id: str
    name: Name
    stability: Stability
    brief: Sentence
    note: Sentence | None = None
    attributes: tuple[Reference, ...] = ()


Group = Annotated[AttributeGroup | Metric | Entity | Span | Event, Field(discriminator="type")]


class File(Form):
    """One file of the registry."""

    groups: tuple[Group, ...]


def short(name: str) -> str:
    """The name without the prefix that all of this project's names share."""
    return name.removeprefix(PREFIX)


def constant(name: str) -> str:
    """The Python constant of a name: `rl.step.count` is `RL_STEP_COUNT`."""
    return short(name).replace(".", "_").upper()
