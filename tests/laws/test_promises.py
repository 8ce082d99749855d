"""What the registry promises is what the code can produce: no metric and no span more, and none less.

A metric of a step is produced by an engine that fills its field. Any other metric, and a span, is produced where the
code uses its constant: in an engine's package by that engine, in `common` by both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from tests.laws.source import ENGINES, MODULES, NAMES, Module
from tools.generate import ROOT
from tools.model import ENGINES as EVERYWHERE
from tools.model import Metric, Span, constant
from tools.registry import load

STEPS = "common.vocabulary.step"
FILLS_FOR_BOTH = (
    "common.graders.figures",
    "common.recording.memory",
    "common.recording.rewards",
    "common.recording.tools",
)
ONLY_READ = ("cli", "demo", "reading", "replay", "report", "testing")
"""They show, or say again, what others publish."""
REGISTRY = load(ROOT / "registry")
BY_NAME = {value.name: key for key, value in vars(names).items() if key in {constant(m.name) for m in REGISTRY.metrics}}
FIELDS = {
    step.__name__: {
        field.name: BY_NAME[field.metadata["metric"].name] for field in fields(step) if "metric" in field.metadata
    }
    for step in (RLStep, SFTStep)
}
"""By kind of step, the constant of each field's metric."""
COUNTERS = {step.__name__: BY_NAME[step.counter.name] for step in (RLStep, SFTStep)}
OF_STEPS = {name for names_of in FIELDS.values() for name in names_of.values()} | {*COUNTERS.values()}


def filled(module: Module) -> Iterator[str]:
    """Fields of a step that a module sets, gives to a step's constructor, or lists in a table of log keys."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
    yield from (word.value for word in module.words if isinstance(word.value, str))


def used(module: Module) -> set[str]:
    """Constants of the registry that stand in a module."""
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.Attribute | ast.Name)]
    return {node.attr if isinstance(node, ast.Attribute) else node.id for node in nodes}


def steps_of(house: str) -> set[str]:
    """The kinds of steps that a house knows. Fields of either kind may have the same name."""
    return {step for step in FIELDS for module in MODULES.values() if module.lies_in(house) and step in used(module)}


def produced() -> dict[str, set[str]]:
    """By constant, the houses that can produce it: an engine, or `common`."""
    found: dict[str, set[str]] = {}
    for module in MODULES.values():
        house = module.name.partition(".")[0]
        if module.name in (NAMES, STEPS) or house in ONLY_READ:
            continue
        if house in ENGINES or module.name in FILLS_FOR_BOTH:
            for step in steps_of(house):
                for field in set(filled(module)) & FIELDS[step].keys():
                    found.setdefault(FIELDS[step][field], set()).add(house)
        for name in used(module) - OF_STEPS:
            found.setdefault(name, set()).add(house)
    for step, counter in COUNTERS.items():  # a step that has a number is counted
        found[counter] = found[FIELDS[step]["number"]]
    return found


PRODUCED = produced()


def engines(name: str) -> set[str]:
    houses = PRODUCED.get(name, set())
    return houses - {"common"} | ({*EVERYWHERE} if "common" in houses else set())


def promised(group: Any) -> tuple[str, tuple[str, ...]]:
    """The constant of a metric or span, and the engines that its entry in the registry names."""
    if isinstance(group, Metric):
        return constant(group.name), group.extras.engines
    return f"SPAN_{constant(group.id.removeprefix('span.'))}", group.engines


JOBS: list[Metric | Span] = [m for m in REGISTRY.metrics if m.extras.emitter == "job"] + REGISTRY.spans


@pytest.mark.parametrize("group", JOBS, ids=lambda group: group.id)
def test_a_job_publishes_what_the_registry_says_with_the_engines_that_it_says(group: Metric | Span) -> None:
    name, said = promised(group)
    assert {*said} == engines(name), f"{group.id}: correct `engines` under annotations.akka; [] is “not emitted yet”"


def test_a_service_publishes_all_that_the_registry_says() -> None:
    service = {constant(metric.name) for metric in REGISTRY.metrics if metric.extras.emitter == "service"}
    assert {name for name in service if "common" not in PRODUCED.get(name, set())} == set()


def test_the_reference_shows_the_mark() -> None:
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    assert reference.count("*Not emitted yet.*") == sum(promised(group)[1] == () for group in JOBS)
    assert reference.count("*verl only.*") == sum(promised(group)[1] == ("verl",) for group in JOBS) > 0
    assert reference.count("*TRL only.*") == sum(promised(group)[1] == ("trl",) for group in JOBS) > 0
