"""Functions that were copied before the plugin was loaded are replaced, or named."""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from akka_otel_callbacks.common.patching import calls, copies
from akka_otel_callbacks.common.patching.calls import HOOKS, Call, before
from akka_otel_callbacks.verl import plugin

ROOT = Path(__file__).parents[3]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that is imported and has the function `answer`."""
    module = ModuleType("copied_source")
    exec("def answer(times=1):\n    return times\n", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(calls, "out_of_reach", [])
    return module


def user(source: ModuleType, monkeypatch: pytest.MonkeyPatch, code: str) -> Any:
    """A module that was imported before the plugin and has its own ways to call the function."""
    module = ModuleType("copied_user")
    exec(f"import functools\nfrom copied_source import answer\n{code}", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def double(source: ModuleType) -> list[str]:
    """Hooks the function. Who is said to be out of reach."""
    before(source, "answer", ask_for_two)
    return calls.out_of_reach


def ask_for_two(call: Call) -> None:
    call.kwargs = {**call.kwargs, "times": 2}


REACHED = {
    "a name": ("call = answer", "call()"),
    "a registry": ("registry = {'a': answer}", "registry['a']()"),
    "a registry of registries": ("registry = {'a': {'b': [answer]}}", "registry['a']['b'][0]()"),
    "a list": ("calls = [len, answer]", "calls[1]()"),
    "a closure": ("def make(f):\n    def call():\n        return f()\n    return call\ncall = make(answer)", "call()"),
    "a partial": ("call = functools.partial(answer)", "call()"),
    "a class": ("class Recipe:\n    call = staticmethod(len)\n    answer = answer", "Recipe.answer()"),
}
NAMED = {
    "a tuple": ("CALLS = (answer,)", "CALLS[0]()", "copied_user.CALLS (a tuple)"),
    "defaults": ("def call(f=answer):\n    return f()", "call()", "copied_user.call (its defaults)"),
    "a set": ("CALLS = {answer}", "next(iter(CALLS))()", "copied_user.CALLS (a set)"),
}


@pytest.mark.parametrize("how", REACHED)
def test_a_copy_is_replaced(how: str, source: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    code, call = REACHED[how]
    module = user(source, monkeypatch, code)
    assert double(source) == []
    assert eval(call, module.__dict__) == module.answer() == source.answer() == 2


@pytest.mark.parametrize("how", NAMED)
def test_a_copy_that_cannot_be_replaced_is_named(
    how: str, source: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code, call, name = NAMED[how]
    module = user(source, monkeypatch, code)
    monkeypatch.setattr(plugin, "failed", {})
    monkeypatch.setattr(plugin, "bypassed", {})
    monkeypatch.setattr(plugin, "out_of_reach", calls.out_of_reach)
    ours = types.SimpleNamespace(install=double)
    monkeypatch.setattr(plugin.importlib, "import_module", lambda _: ours)
    plugin.install(plugin.Hook("copied_source", "copies:install", "the answers"), source)
    assert eval(call, module.__dict__) == 1
    assert module.answer() == source.answer() == 2
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        plugin.warn_of_failed()
    (record,) = caplog.records
    assert f"the answers (copied_source.answer in {name})" in record.getMessage()


def test_another_plugins_wrap_is_wrapped_and_called_once(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = source.answer
    theirs = functools.wraps(original)(lambda **kwargs: 10 * original(**kwargs))
    source.answer = theirs
    module = user(source, monkeypatch, "")
    assert double(source) == []
    assert module.answer() == source.answer() == 20


def test_a_copy_in_a_partial_keeps_its_arguments(source: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    exec("def answer(a, b=0, times=1):\n    return (a + b) * times\n", source.__dict__)
    module = user(source, monkeypatch, "call = functools.partial(answer, 1, b=2)\ncall.note = 'kept'")
    double(source)
    assert (module.call(), module.call.note) == (6, "kept")


def test_a_function_that_nobody_copied_is_not_searched_for(source: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies.gc, "get_referrers", lambda _: 1 / 0)
    double(source)
    assert source.answer() == 2


def test_other_names_of_the_module_are_not_asked_for_anything(source: Any) -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("compared")

        __hash__ = None  # type: ignore[assignment]

    source.hostile = Hostile()
    assert double(source) == []
    assert source.answer() == 2


HOOKED_NAMES = """
import sys, types

def hooked():
    found = set()
    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if not isinstance(module, types.ModuleType) or not str(name).startswith(("verl.", "ray", "transfer_queue")):
            continue
        for owner in [module, *[item for item in vars(module).values() if isinstance(item, type)]]:
            if owner is module or owner.__module__ == name:
                here = name if owner is module else f"{name}.{owner.__name__}"
                marked = [key for key, item in list(vars(owner).items()) if MARK in getattr(item, "__dict__", {})]
                found.update(f"{here}.{key}" for key in marked)
    return sorted(found)
"""
HOOKED = list(dict.fromkeys(hook.module for hook in plugin.HOOKS if not hook.module.startswith("vllm")))
FUNCTIONS = (
    ("verl.trainer.ppo.metric_utils", "compute_data_metrics"),
    ("verl.trainer.ppo.core_algos", "agg_loss"),
    ("verl.trainer.ppo.core_algos", "kl_penalty"),
    ("verl.trainer.ppo.core_algos", "compute_policy_loss_vanilla"),
    ("verl.workers.utils.losses", "ppo_loss"),
    ("verl.trainer.ppo.ray_trainer", "apply_kl_penalty"),
    ("transfer_queue", "async_kv_batch_put"),
)


def users_module_first(tmp_path: Path) -> dict[str, Any]:
    """What is hooked in a process where a user's module has copies before the plugin is loaded."""
    copied = "\n".join(f"from {module} import {name}" for module, name in FUNCTIONS)
    imports = "\n".join(f"import {module}" for module in HOOKED)
    (tmp_path / "users_module.py").write_text(f"{imports}\n{copied}\n")
    script = f"""
import json
MARK = {HOOKS!r}
{HOOKED_NAMES}
import verl, users_module
from akka_otel_callbacks.verl import plugin
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
print("told " + json.dumps({{
    "hooked": hooked(),
    "copies": [name for _, name in {FUNCTIONS!r} if MARK not in vars(getattr(users_module, name))],
    "registry": MARK in vars(POLICY_LOSS_REGISTRY["vanilla"]),
    "failed": [f"{{hook.module}}: {{error}}" for hook, error in plugin.failed.items()],
    "bypassed": [str(who) for who in plugin.bypassed.values()],
}}))
"""
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT / "examples" / "verl_cpu")])
    environ = {**os.environ, "PYTHONPATH": path, "VERL_USE_EXTERNAL_PLUGINS": "none"}
    done = subprocess.run([sys.executable, "-c", script], env=environ, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    return dict(json.loads(line.removeprefix("told ")))


def plugin_first() -> list[str]:
    """What is hooked in this process, where verl has loaded the plugin."""
    for module in HOOKED:
        plugin.importlib.import_module(module)
    namespace: dict[str, Any] = {"MARK": HOOKS}
    exec(HOOKED_NAMES, namespace)
    return list(namespace["hooked"]())


def test_every_hook_takes_in_either_order_of_imports(tmp_path: Path) -> None:
    pytest.importorskip("verl", reason="verl is not installed in this environment")
    told = users_module_first(tmp_path)
    assert told["copies"] == told["failed"] == told["bypassed"] == []
    assert told["registry"]
    assert {f"{module}.{name}" for module, name in FUNCTIONS} <= set(told["hooked"])
    for trainer in ("v1.trainer_base", "ray_trainer"):
        assert f"verl.trainer.ppo.{trainer}.compute_data_metrics" in told["hooked"]
    assert set(told["hooked"]) >= set(plugin_first())
