"""Who may import what. What an import loads in a real process is measured in `tests/common/test_imports.py`."""

from __future__ import annotations

import pytest

from tests.laws.source import ENGINES, MODULES, PACKAGE, Module, own_imports

FOREIGN_TO_COMMON = {
    "torch",
    "transformers",
    "trl",
    "datasets",
    "peft",
    "accelerate",
    "verl",
    "ray",
    "vllm",
    "tensordict",
}
ON_THE_ENGINES_TORCH = {"common.flops.walk", "common.memory.allocator", "common.run.torchrun"}
"""They import, within the functions that need it, the torch that the engine has loaded."""


@pytest.mark.parametrize("module", [m for m in MODULES.values() if m.name.startswith(ENGINES)], ids=lambda m: m.name)
def test_an_engine_package_imports_no_opentelemetry(module: Module) -> None:
    assert {name for name in module.imports if name.partition(".")[0] == "opentelemetry"} == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_package_imports_itself_and_common_only(engine: str) -> None:
    rooms = {name.partition(".")[0] for m in MODULES.values() if m.lies_in(engine) for name in own_imports(m)}
    assert rooms <= {engine, "common"}


def test_common_imports_nothing_of_the_rest_of_the_package() -> None:
    rooms = {name.partition(".")[0] for m in MODULES.values() if m.lies_in("common") for name in own_imports(m)}
    assert rooms == {"common"}


@pytest.mark.parametrize("module", [m for m in MODULES.values() if m.lies_in("common")], ids=lambda m: m.name)
def test_common_imports_no_engine(module: Module) -> None:
    foreign = {name.partition(".")[0] for name in module.imports} & FOREIGN_TO_COMMON
    assert foreign == ({"torch"} if module.name in ON_THE_ENGINES_TORCH else set())


def test_imports_within_the_package_are_absolute() -> None:
    """`own_imports` would not see another kind."""
    relative = {m.name for m in MODULES.values() if any(name.startswith("None.") for name in m.imports)}
    assert relative == set()
    assert own_imports(MODULES["trl.callback"]) > {"trl.session", "trl.handed"}, PACKAGE
