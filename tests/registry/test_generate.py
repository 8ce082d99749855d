"""The generated files say what the registry says, and the check notices when they do not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from akka_otel_callbacks.common.vocabulary import metric as typed
from akka_otel_callbacks.common.vocabulary import names
from tools import generate
from tools.deploy import deployment
from tools.model import Attribute, Enumeration, Metric, constant
from tools.reference import anchor
from tools.registry import load

REGISTRY = load(generate.ROOT / "registry")
REFERENCE = (generate.ROOT / generate.REFERENCE).read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the registry and of what is generated from it, which the generator works on."""
    shutil.copytree(generate.ROOT / "registry", tmp_path / "registry")
    shutil.copy(generate.ROOT / "pyproject.toml", tmp_path)
    for output in generate.OUTPUTS:
        (tmp_path / output).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(generate.ROOT / output, tmp_path / output)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    return tmp_path


def test_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("output", [output for output in generate.OUTPUTS if output not in deployment.OUTPUTS])
def test_a_change_of_the_registry_is_noticed_and_written(
    project: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (project / "registry").glob("*.yaml"):
        path.write_text(
            re.sub(r"training\.pipeline\.id\b", "training.pipeline.key", path.read_text(encoding="utf-8")), "utf-8"
        )
    changed = re.compile(r"pipeline[._]?key", re.IGNORECASE)

    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert changed.search(said.partition(f"{output} is not what the registry says")[2])
    assert not changed.search((project / output).read_text(encoding="utf-8"))

    assert generate.main([]) == 0
    assert changed.search((project / output).read_text(encoding="utf-8"))
    assert generate.main(["--check"]) == 0


def test_a_missing_output_is_noticed_and_a_long_difference_is_cut(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / generate.NAMES).unlink()
    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) <= generate.LINES_SHOWN + 2
    assert re.fullmatch(r"… and \d+ lines more", said[-1])


def test_a_broken_registry_is_explained_and_nothing_is_written(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "registry" / "sft.yaml").write_text("groups: [{id: metric.x, type: metrik}]", "utf-8")
    before = (project / generate.NAMES).read_text(encoding="utf-8")
    assert generate.main([]) == 1
    assert "sft.yaml: metric.x: " in capsys.readouterr().err
    assert (project / generate.NAMES).read_text(encoding="utf-8") == before


@pytest.mark.parametrize("group", REGISTRY.metrics, ids=lambda group: group.name)
def test_a_typed_metric_is_what_the_registry_says(group: Metric) -> None:
    made: typed.Metric = getattr(names, constant(group.name))
    assert (made.name, made.kind.value, made.unit) == (group.name, group.kind, group.unit)
    assert made.description == group.brief
    assert [attribute.name for attribute in made.attributes] == [use.ref for use in group.attributes]
    assert (made.buckets, made.exponential) == (group.extras.buckets, group.extras.exponential)
    values = set() if isinstance(group.extras.sticky, bool) else set(group.extras.sticky)
    assert (made.sticky, made.sticky_values) == (group.extras.sticky is True, values)
    assert made in (names.JOB_METRICS if group.extras.emitter == "job" else names.SERVICE_METRICS)


@pytest.mark.parametrize("definition", REGISTRY.attributes.values(), ids=lambda definition: definition.id)
def test_a_typed_attribute_is_what_the_registry_says(definition: Attribute) -> None:
    made: typed.Attribute = getattr(names, f"ATTR_{constant(definition.id)}")
    closed = isinstance(definition.type, Enumeration)
    types = {"string": str, "int": int, "double": float, "boolean": bool}
    assert (made.name, made.description) == (definition.id, definition.brief)
    assert made.type is (str if closed else types[definition.type])
    assert made.values == (tuple(member.value for member in definition.type.members) if closed else ())


def test_nothing_is_generated_twice_or_left_out() -> None:
    assert [metric.name for metric in names.METRICS] == [
        *(metric.name for metric in REGISTRY.metrics if metric.extras.emitter == "job"),
        *(metric.name for metric in REGISTRY.metrics if metric.extras.emitter == "service"),
    ]
    made = [value for name, value in vars(names).items() if isinstance(value, typed.Attribute)]
    assert sorted(attribute.name for attribute in made) == sorted(REGISTRY.attributes)
    assert len(names.SPANS) == len(REGISTRY.spans)
    assert [event.name for event in names.EVENTS] == [event.name for event in REGISTRY.events]


def test_well_known_values_are_constants() -> None:
    assert names.MemoryComponent.WEIGHTS == "weights"
    assert names.SftStepPhase.FORWARD_BACKWARD == "forward_backward"
    assert names.RlTerm.JSON_LABEL_MATCH == "json-label-match"
    assert names.ClaimState.GRANTED == "GRANTED"
    upload = names.SPAN_CHECKPOINT_OPERATION.of(names.CheckpointOperation.UPLOAD)
    assert upload == "akka.optimize.training.checkpoint.upload"


def test_importing_the_names_imports_nothing_else() -> None:
    source = "import sys, akka_otel_callbacks.common.vocabulary.names; print(*sys.modules)"
    command = [sys.executable, "-c", source]
    path = {"PYTHONPATH": str(generate.ROOT / "src")}
    loaded = subprocess.run(command, env=path, capture_output=True, text=True, check=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    assert {name for name in foreign if name in {"torch", "transformers", "trl", "numpy", "opentelemetry"}} == set()


def test_every_name_is_described_in_the_reference() -> None:
    for name in [metric.name for metric in REGISTRY.metrics] + list(REGISTRY.attributes):
        assert f"\n#### `{name}`\n" in REFERENCE
    for attribute in REGISTRY.attributes.values():
        for value, meaning in attribute.values.items():
            assert f"| `{value}` | {meaning} |" in REFERENCE


def test_every_link_of_the_reference_has_one_target() -> None:
    headings = [anchor(heading) for heading in re.findall(r"^#+ (.*)$", REFERENCE, re.MULTILINE)]
    links = set(re.findall(r"\]\(#([^)]*)\)", REFERENCE))
    assert links
    assert links <= set(headings)
    repeated = {heading for heading in headings if headings.count(heading) > 1}
    assert repeated <= {"checkpoints"}, "a link reaches only the first of two equal headings"


def test_every_table_of_the_reference_is_whole() -> None:
    """In a table, each line has as many cells as its head; anything else GitHub shows as text."""
    cells = None
    for line in REFERENCE.splitlines():
        if not line.startswith("|"):
            cells = None
            continue
        found = len(re.findall(r"(?<!\\)\|", line))
        assert cells in (None, found), line
        cells = found
