"""A registry that breaks a rule is refused, with the file, the group and what is wrong."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.registry import UNIT, RegistryError, load

Group = dict[str, Any]

VALID: dict[str, Group] = {
    "attributes": {
        "id": "registry.step",
        "type": "attribute_group",
        "brief": "Steps.",
        "attributes": [
            {
                "id": "step.phase",
                "type": {
                    "members": [
                        {"id": "gen", "value": "gen", "stability": "development", "brief": "Generating."},
                        {"id": "eval", "value": "eval", "stability": "development", "brief": "Evaluating."},
                    ]
                },
                "stability": "development",
                "brief": "The phase.",
            },
            {
                "id": "step.rank",
                "type": "int",
                "stability": "development",
                "brief": "The rank.",
                "examples": [0, 7],
            },
        ],
    },
    "gauge": {
        "id": "metric.step.share",
        "type": "metric",
        "metric_name": "step.share",
        "instrument": "gauge",
        "unit": "1",
        "stability": "development",
        "brief": "Share of the step.",
        "attributes": [{"ref": "step.phase"}],
        "annotations": {"akka": {"emitter": "job", "sticky": ["eval"]}},
    },
    "counter": {
        "id": "metric.step.count",
        "type": "metric",
        "metric_name": "step.count",
        "instrument": "counter",
        "unit": "{step}",
        "stability": "development",
        "brief": "Steps.",
        "annotations": {"akka": {"emitter": "job"}},
    },
    "histogram": {
        "id": "metric.step.duration",
        "type": "metric",
        "metric_name": "step.duration",
        "instrument": "histogram",
        "unit": "s",
        "stability": "development",
        "brief": "Duration of a step.",
        "annotations": {"akka": {"emitter": "job", "buckets": [0.1, 1]}},
    },
    "entity": {
        "id": "entity.job",
        "type": "entity",
        "name": "job",
        "stability": "development",
        "brief": "A job.",
        "attributes": [{"ref": "step.rank", "requirement_level": {"conditionally_required": "only with ranks"}}],
    },
    "span": {
        "id": "span.step.phase",
        "type": "span",
        "span_kind": "internal",
        "stability": "development",
        "brief": "A phase.",
        "attributes": [{"ref": "step.phase"}],
        "annotations": {"akka": {"one_per": "step.phase"}},
    },
}


def problems(groups: dict[str, Group]) -> list[str]:
    """What is wrong with a registry of these groups, which stand in the file `all.yaml`."""
    return problems_of({"groups": list(groups.values())})


def problems_of(document: Any) -> list[str]:
    """What is wrong with a registry of one file, `all.yaml`."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "all.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        try:
            load(Path(directory))
        except RegistryError as error:
            return error.problems
    return []


def put(group: str, path: str, value: Any) -> Callable[[dict[str, Group]], None]:
    """A change of the valid registry: a value at a path such as `attributes.0.ref`; None takes it out."""

    def change(groups: dict[str, Group]) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        node: Any = groups[group]
        for part in way:
            node = node[part]
        if value is None:
            del node[last]
        else:
            node[last] = value

    return change


def repeat(group: str, **changes: Any) -> Callable[[dict[str, Group]], None]:
    """A change of the valid registry: a second group like one that it has."""

    def change(groups: dict[str, Group]) -> None:
        groups["again"] = {**copy.deepcopy(groups[group]), **changes}

    return change


def test_the_registry_that_the_cases_start_from_is_valid() -> None:
    assert problems(VALID) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            put("gauge", "attributes.0.ref", "step.phaze"),
            "metric.step.share: refers to the attribute step.phaze, which no attribute group defines",
            id="unknown ref",
        ),
        pytest.param(
            put("entity", "attributes.0.ref", "step.rang"),
            "entity.job: refers to the attribute step.rang, which no attribute group defines",
            id="unknown ref of the resource",
        ),
        pytest.param(
            put("gauge", "attributes", [{"ref": "step.phase"}, {"ref": "step.phase"}]),
            "metric.step.share: refers to the attribute step.phase 2 times",
            id="ref twice",
        ),
        pytest.param(repeat("counter"), "the metric STEP_COUNT is defined 2 times", id="metric twice"),
        pytest.param(
            repeat("counter", id="metric.step_count", metric_name="step_count"),
            "the metric STEP_COUNT is defined 2 times",
            id="two metrics of one constant",
        ),
        pytest.param(
            repeat("attributes", id="registry.again"),
            "the attribute STEP_PHASE is defined 2 times",
            id="attribute twice",
        ),
        pytest.param(repeat("entity"), "the group ID entity.job is defined 2 times", id="group twice"),
        pytest.param(
            put("gauge", "brief", "Devices of the job."),
            "metric.step.share: the unit 1 is for fractions",
            id="unit 1 for no fraction",
        ),
        pytest.param(
            put("counter", "unit", "1"), "metric.step.count: a counter must not have the unit 1", id="counter of unit 1"
        ),
        pytest.param(
            put("histogram", "unit", "1"),
            "metric.step.duration: a histogram must not have the unit 1",
            id="histogram of unit 1",
        ),
        pytest.param(
            put("counter", "unit", "steps"),
            "metric.step.count: the unit 'steps' is neither a known UCUM unit nor an annotation",
            id="unknown unit",
        ),
        pytest.param(
            put("counter", "metric_name", "Step.Count"), "metric.step.count: metric_name: ", id="name in capitals"
        ),
        pytest.param(put("counter", "metric_name", "1step"), "metric.step.count: metric_name: ", id="name of a digit"),
        pytest.param(
            put("counter", "metric_name", "step.counts"),
            "metric.step.count: the ID must be metric.step.counts",
            id="name and ID differ",
        ),
        pytest.param(
            put("entity", "name", "jobs"), "entity.job: the ID must be entity.jobs", id="entity's name and ID"
        ),
        pytest.param(
            put("attributes", "attributes.0.id", "Step"), "registry.step: Step: id: ", id="attribute in capitals"
        ),
        pytest.param(
            put("attributes", "attributes.0.type.members.1.value", "gen"),
            "registry.step: step.phase: the member value gen stands there 2 times",
            id="enum value twice",
        ),
        pytest.param(
            put("attributes", "attributes.0.type.members.1.id", "gen"),
            "registry.step: step.phase: the member id gen stands there 2 times",
            id="enum member twice",
        ),
        pytest.param(
            put("attributes", "attributes.0.type.members", []), "registry.step: step.phase: type: ", id="empty enum"
        ),
        pytest.param(
            put("attributes", "attributes.0.type.members.1.brief", None),
            "registry.step: step.phase: type: eval: brief: Field required",
            id="enum value without meaning",
        ),
        pytest.param(
            put("attributes", "attributes.0.examples", ["gen"]),
            "registry.step: step.phase: an enum's members are its examples",
            id="enum with examples",
        ),
        pytest.param(
            put("attributes", "attributes.0.annotations", {"akka": {"well_known": {"x": "X."}}}),
            "registry.step: step.phase: an enum's values are its members",
            id="enum with well-known values",
        ),
        pytest.param(
            put("attributes", "attributes.1.annotations", {"akka": {"well_known": {"x": "X."}}}),
            "registry.step: step.rank: well_known is for type string, not int",
            id="well-known integers",
        ),
        pytest.param(
            put("attributes", "attributes.1.examples", ["zero"]),
            "registry.step: step.rank: the example 'zero' is not of type int",
            id="example of another type",
        ),
        pytest.param(
            put("attributes", "attributes.1.examples", [True]),
            "registry.step: step.rank: the example True is not of type int",
            id="boolean for an integer",
        ),
        pytest.param(
            put("attributes", "attributes.1.examples", None),
            "registry.step: step.rank: needs examples",
            id="no examples",
        ),
        pytest.param(
            put("attributes", "attributes.1.type", "float"), "registry.step: step.rank: type: ", id="unknown type"
        ),
        pytest.param(
            put("attributes", "attributes.0.annotations", {"akka": {"promoted": True}}),
            "registry: step.phase: promoted is for attributes of the resource, and no entity has this one",
            id="promoted without a resource",
        ),
        pytest.param(
            put("histogram", "annotations.akka.buckets", None),
            "metric.step.duration: a histogram has either buckets or exponential: true",
            id="no buckets",
        ),
        pytest.param(
            put("histogram", "annotations.akka.exponential", True),
            "metric.step.duration: a histogram has either buckets or exponential: true",
            id="buckets of two kinds",
        ),
        pytest.param(
            put("histogram", "annotations.akka.buckets", [1, 1]),
            "metric.step.duration: the buckets must rise",
            id="equal bounds",
        ),
        pytest.param(
            put("gauge", "annotations.akka.buckets", [1, 2]),
            "metric.step.share: buckets and exponential are for histograms, not for a gauge",
            id="buckets of a gauge",
        ),
        pytest.param(
            put("counter", "annotations.akka.sticky", True),
            "metric.step.count: sticky is for gauges, not for a counter",
            id="sticky counter",
        ),
        pytest.param(
            put("gauge", "annotations.akka.sticky", ["test"]),
            "metric.step.share: sticky value 'test' is no well-known value of one of its attributes",
            id="unknown sticky value",
        ),
        pytest.param(
            put("span", "annotations.akka.one_per", "step.rank"),
            "span.step.phase: one_per step.rank must be one of its attributes",
            id="family by an attribute that the span has not",
        ),
        pytest.param(
            put("gauge", "annotations.akka.emitter", None),
            "metric.step.share: annotations: akka: emitter: Field required",
            id="no emitter",
        ),
        pytest.param(
            put("gauge", "annotations.akka.stiky", True),
            "metric.step.share: annotations: akka: stiky: Extra inputs are not permitted",
            id="misspelt key",
        ),
        pytest.param(
            put("gauge", "instrument", "summary"), "metric.step.share: instrument: Input should be", id="instrument"
        ),
        pytest.param(
            put("gauge", "brief", "Share of the step"),
            "metric.step.share: brief: must be a sentence that ends with a full stop, not 'Share of the step'",
            id="brief without a full stop",
        ),
        pytest.param(
            put("gauge", "brief", "Share of " + "a" * 90 + "."),
            "metric.step.share: brief: String should have at most 90",
            id="long brief",
        ),
        pytest.param(put("gauge", "type", "metrik"), "metric.step.share: Input tag 'metrik' found", id="group type"),
    ],
)
def test_a_broken_registry_is_refused(change: Callable[[dict[str, Group]], None], expected: str) -> None:
    groups = copy.deepcopy(VALID)
    change(groups)
    found = problems(groups)
    assert any(expected in problem for problem in found), found
    assert all(problem.startswith(("all.yaml: ", "registry: ")) for problem in found)


def test_every_problem_is_reported_not_only_the_first() -> None:
    groups = copy.deepcopy(VALID)
    put("counter", "unit", "1")(groups)
    put("gauge", "attributes.0.ref", "nothing")(groups)
    put("histogram", "annotations.akka.buckets", [2, 1])(groups)
    assert len(problems(groups)) == 4, "the gauge's sticky value belonged to the attribute that is gone"


def test_a_directory_without_a_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text("name: empty", encoding="utf-8")
    with pytest.raises(RegistryError, match=r"there is no \*\.yaml file"):
        load(tmp_path)


def test_what_is_not_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("groups: [", encoding="utf-8")
    with pytest.raises(RegistryError, match=r"a\.yaml: not YAML"):
        load(tmp_path)


KEYS = st.sampled_from(sorted({key for group in VALID.values() for key in group} | {"groups", "members", "ref"}))
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["metric", "span", "1"])
ANYTHING = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=15
)


@settings(max_examples=60, deadline=None)
@given(ANYTHING | st.fixed_dictionaries({"groups": ANYTHING | st.lists(ANYTHING, min_size=1, max_size=3)}))
def test_whatever_stands_in_a_file_it_is_taken_for_empty_or_refused(document: Any) -> None:
    found = problems_of(document)
    assert bool(found) is (document != {"groups": []})
    assert all(problem.startswith("all.yaml: ") for problem in found)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(VALID)), st.data())
def test_whatever_stands_in_a_field_the_registry_is_good_or_refused(name: str, data: st.DataObject) -> None:
    groups = copy.deepcopy(VALID)
    groups[name][data.draw(st.sampled_from(sorted(groups[name])))] = data.draw(ANYTHING)
    assert all(problem.startswith(("all.yaml: ", "registry: ")) for problem in problems(groups))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=8))
def test_a_unit_is_taken_only_if_it_is_known(unit: str) -> None:
    groups = copy.deepcopy(VALID)
    put("counter", "unit", unit)(groups)
    known = unit != "1" and UNIT.fullmatch(unit) is not None
    assert bool(problems(groups)) is not known
