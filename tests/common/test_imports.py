"""What an import costs: no engine, no SDK, before a training needs it."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

import akka_otel_callbacks
from akka_otel_callbacks import common
from tests.common.scripts import reported, run

ENGINES = ("torch", "transformers", "trl", "verl", "ray", "vllm", "datasets", "peft", "pynvml", "pyarrow", "numpy")
SDK = ("opentelemetry.sdk", "opentelemetry.exporter", "grpc", "google.protobuf", "requests", "prometheus_client")
MODULES = [module.name for module in pkgutil.walk_packages(common.__path__, f"{common.__name__}.")]
NEEDED_BY_THE_CORE = [
    f"akka_otel_callbacks.common.{name}"
    for name in (
        "export.exporters guard log numbers recording.board recording.recorder run.identity telemetry threads "
        "vocabulary.metric vocabulary.names vocabulary.step"
    ).split()
]


def loaded_by(module: str, cwd: Path) -> list[str]:
    source = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    return reported(run(source, {}, cwd, prelude=""))


def of(loaded: list[str], packages: tuple[str, ...]) -> list[str]:
    return [name for name in loaded if name in packages or name.startswith(tuple(f"{p}." for p in packages))]


def test_the_package_alone_loads_neither_an_engine_nor_opentelemetry(tmp_path: Path) -> None:
    loaded = loaded_by(akka_otel_callbacks.__name__, tmp_path)
    assert of(loaded, (*ENGINES, "opentelemetry")) == []
    assert "typer" not in loaded


@pytest.mark.parametrize("face", ["checkpoints", "gpu", "graders", "service"])
def test_what_programs_import_loads_neither_an_engine_nor_the_sdk(face: str, tmp_path: Path) -> None:
    assert of(loaded_by(f"akka_otel_callbacks.{face}", tmp_path), (*ENGINES, *SDK)) == []


def test_the_modules_are_all_there() -> None:
    assert set(NEEDED_BY_THE_CORE) <= set(MODULES)


def test_no_module_of_the_core_loads_an_engine(tmp_path: Path) -> None:
    assert of(loaded_by(", ".join(MODULES), tmp_path), ENGINES) == []


@pytest.mark.parametrize("packages", [(*ENGINES, *SDK)])
def test_the_core_itself_loads_no_sdk_before_a_telemetry_starts(packages: tuple[str, ...], tmp_path: Path) -> None:
    assert of(loaded_by(", ".join(NEEDED_BY_THE_CORE), tmp_path), packages) == []


@pytest.mark.parametrize("names", ["", "graded, GraderFailure, JudgeStopped, JsonLabelMatch", "Judge"])
def test_graders_load_neither_an_engine_nor_a_judges_client(names: str, tmp_path: Path) -> None:
    """The client comes when a judge is made."""
    module = "akka_otel_callbacks.graders"
    source = f"import json, sys; from {module} import {names or '__all__'}; print(json.dumps(sorted(sys.modules)))"
    assert of(reported(run(source, {}, tmp_path, prelude="")), (*ENGINES, *SDK, "openai", "httpx")) == []
