"""Changes to somebody else's modules right after their import."""

from __future__ import annotations

import copy
import importlib
import inspect
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.common.patching.calls import Call, before
from akka_otel_callbacks.common.patching.imports import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package `victim` with a module that binds a name of another one. All traces are removed."""
    root = tmp_path / "victim"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "source.py").write_text("def answer(times=1):\n    return times\n")
    (root / "user.py").write_text("from victim.source import answer\n")
    (root / "broken.py").write_text("raise RuntimeError('broken by itself')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield root
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == "victim"]:
        del sys.modules[name]


def double(module: ModuleType) -> None:
    before(module, "answer", ask_for_two)


def ask_for_two(call: Call) -> None:
    call.kwargs = {**call.kwargs, "times": 2 * call.kwargs.get("times", 1)}


def test_a_hook_runs_before_anybody_binds_a_name(package: Path) -> None:
    after_import({"victim.source": double})
    assert "victim" not in sys.modules
    assert importlib.import_module("victim.user").answer() == 2


def test_a_module_that_is_imported_already_is_changed_at_once(package: Path) -> None:
    source = importlib.import_module("victim.source")
    after_import({"victim.source": double})
    assert source.answer() == 2


def test_two_finders_with_one_module_hook_it_once(package: Path) -> None:
    """Another plugin with a finder of the same kind asks ours, and ours asks it."""
    after_import({"victim.source": double})
    after_import({"victim.source": double})
    assert importlib.import_module("victim.source").answer() == 2


def test_another_finder_that_searches_the_whole_path_again_is_no_endless_loop(package: Path) -> None:
    busy: set[str] = set()

    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name != "victim.source" or name in busy:
            return None
        busy.add(name)
        return importlib.util.find_spec(name)

    sys.meta_path.insert(0, SimpleNamespace(find_spec=find_spec))  # type: ignore[arg-type]
    after_import({"victim.source": double})
    assert importlib.import_module("victim.source").answer() == 2


def test_a_finder_of_an_older_kind_is_passed_over(package: Path) -> None:
    """A module that is not there stays missing, which many a program expects of an optional one."""
    after_import({"victim.missing": double, "victim.source": double})
    sys.meta_path.append(SimpleNamespace(find_module=lambda name, path=None: None))  # type: ignore[arg-type]
    assert importlib.import_module("victim.source").answer() == 2
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("victim.missing")


def test_finders_that_somebody_replaced_still_find(package: Path) -> None:
    after_import({"victim.source": double})
    sys.meta_path[:] = [SimpleNamespace(find_spec=finder.find_spec) for finder in sys.meta_path]  # type: ignore[misc]
    assert importlib.import_module("victim.source").answer() == 1


def test_a_module_of_a_loader_of_an_older_kind_is_imported(package: Path) -> None:
    after_import({"victim.source": double})
    loader = SimpleNamespace(load_module=lambda name: sys.modules.setdefault(name, ModuleType(name)))

    def find_spec(name: str, path: object = None, target: object = None) -> object:
        return importlib.machinery.ModuleSpec(name, loader) if name == "victim.source" else None  # type: ignore[arg-type]

    sys.meta_path.insert(1, SimpleNamespace(find_spec=find_spec))  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert importlib.import_module("victim.source").__name__ == "victim.source"


def test_a_reloaded_module_is_hooked_again(package: Path) -> None:
    after_import({"victim.source": double})
    source = importlib.import_module("victim.source")
    assert importlib.reload(importlib.reload(source)).answer() == 2


def test_a_hooked_modules_loader_can_be_copied(package: Path) -> None:
    after_import({"victim.source": double})
    spec: Any = importlib.import_module("victim.source").__spec__
    original, copied = (each.loader.get_source for each in (spec, copy.deepcopy(spec)))
    assert copied("victim.source") == original("victim.source")


def test_a_module_keeps_its_own_error_and_the_hook_does_not_run(package: Path) -> None:
    seen: list[ModuleType] = []
    after_import({"victim.broken": seen.append})
    with pytest.raises(RuntimeError, match="broken by itself"):
        importlib.import_module("victim.broken")
    assert seen == []


def test_a_module_that_does_not_exist_stays_missing(package: Path) -> None:
    after_import({"victim.missing": double})
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("victim.missing")


def test_a_hooked_module_can_still_be_inspected(package: Path) -> None:
    after_import({"victim.source": lambda module: None})
    source = importlib.import_module("victim.source")
    assert "return times" in inspect.getsource(source)
    assert source.__spec__.origin == str(package / "source.py")


def test_an_import_from_several_threads_runs_the_hook_once(package: Path) -> None:
    seen: list[ModuleType] = []
    after_import({"victim.source": seen.append})
    threads = [threading.Thread(target=importlib.import_module, args=("victim.source",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1
