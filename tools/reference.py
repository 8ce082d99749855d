"""The words of `docs/reference.md` that a template cannot say: areas, anchors, links, buckets."""

from __future__ import annotations

import re
from collections.abc import Callable

from tools.model import ENGINES, Attribute, Entity, Event, Metric, Span, short
from tools.prometheus import label_name, series_name
from tools.registry import Registry

AREAS = {
    "rl.yaml": "Reinforcement loop",
    "sft.yaml": "Supervised loop",
    "job.yaml": "Either loop",
    "checkpoint.yaml": "Checkpoints",
    "gpu.yaml": "GPU health",
    "telemetry.yaml": "The telemetry itself",
    "service.yaml": "Trainer service",
}


def areas(registry: Registry) -> dict[str, list[Metric]]:
    """The metrics by the title of their area; a file without one of its own in `AREAS` is an area by its name."""
    found = {file: [group for group in groups if isinstance(group, Metric)] for file, groups in registry.files.items()}
    order = [*AREAS, *(file for file in found if file not in AREAS)]
    return {AREAS.get(file, file.removesuffix(".yaml").capitalize()): found[file] for file in order if found.get(file)}


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(name: str) -> str:
    """A link to where a metric or attribute is described, under its short name."""
    return f"[`{short(name)}`](#{anchor(name)})"


def linker(registry: Registry) -> Callable[[str], str]:
    """A filter that turns each name in code style, short or full, into a link."""
    names = {*registry.attributes, *(metric.name for metric in registry.metrics)}
    targets = {**{short(name): name for name in names}, **{name: name for name in names}}

    def linked(text: str) -> str:
        return re.sub(r"`([^`]+)`", lambda code: link(targets[code[1]]) if code[1] in targets else code[0], text)

    return linked


def bound(value: float, unit: str) -> str:
    """A histogram bound as a person reads it: bytes in binary multiples."""
    if unit == "By":
        for power, multiple in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value >= 2**power:
                return f"{value / 2**power:.15g} {multiple}"
    return f"{value:.15g}"


def buckets(metric: Metric) -> str:
    """What a histogram's buckets are."""
    if metric.extras.exponential:
        return "base-2 exponential"
    return ", ".join(bound(value, metric.unit) for value in metric.extras.buckets)


NAMES_OF_ENGINES = {"trl": "TRL", "verl": "verl"}


def origin(metric: Metric) -> str:
    """Which process publishes a metric, and with which engines."""
    if metric.extras.emitter == "service":
        return "from the service"
    engines = [NAMES_OF_ENGINES[engine] for engine in metric.extras.engines]
    return f"from jobs with {' and '.join(engines)}" if engines else "**not emitted yet**"


def mark(group: Metric | Span) -> str:
    """What a table adds to the description of what not every engine emits."""
    engines = group.extras.engines if isinstance(group, Metric) else group.engines
    if {*engines} >= {*ENGINES}:
        return ""
    return (
        f" *{' and '.join(NAMES_OF_ENGINES[engine] for engine in engines)} only.*" if engines else " *Not emitted yet.*"
    )


def series(metric: Metric) -> str:
    """The metric's names in Prometheus: one for a Collector and a scrape where both agree."""
    collector, scrape, utf8 = (series_name(metric, dialect) for dialect in ("collector", "scrape", "utf8"))
    same = "" if collector == scrape else f", on a scrape `{scrape}`"
    return f"`{collector}`{same}, in UTF-8 `{utf8}`"


def filters(registry: Registry) -> dict[str, Callable[..., object]]:
    """What the template calls."""
    return {
        "anchor": anchor,
        "buckets": buckets,
        "example": lambda example: f"{example:f}".rstrip("0") if isinstance(example, float) else str(example),
        "label": lambda attribute: label_name(attribute, "collector"),
        "link": link,
        "linked": linker(registry),
        "mark": mark,
        "origin": origin,
        "series": series,
        "short": short,
        "users": lambda attribute: _users(registry, attribute),
    }


def _users(registry: Registry, attribute: Attribute) -> list[str]:
    """Links to whatever carries an attribute."""
    links = [link(metric.name) for metric in registry.metrics if _carries(metric, attribute)]
    links += ["the [resource](#resource)"] * any(_carries(entity, attribute) for entity in registry.entities)
    links += ["[spans](#spans)"] * any(_carries(span, attribute) for span in registry.spans)
    return links + ["[log records](#log-records)"] * any(_carries(event, attribute) for event in registry.events)


def _carries(group: Metric | Entity | Span | Event, attribute: Attribute) -> bool:
    return any(use.ref == attribute.id for use in group.attributes)
