"""The plugin in a process of its own: light, silent, and clear about what it could not hook."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from akka_otel_callbacks.verl import plugin

HEAVY = ("torch", "ray", "verl", "vllm", "numpy", "opentelemetry", "akka_otel_callbacks.common.vocabulary.names")


def run(code: str, **environ: str) -> str:
    """What a fresh interpreter prints."""
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environ},
        cwd=Path(plugin.__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stderr == ""
    return process.stdout


def test_the_import_loads_nothing_heavy() -> None:
    loaded = run("import sys, json, akka_otel_callbacks.verl.plugin; print(json.dumps(sorted(sys.modules)))")
    assert not set(HEAVY) & set(json.loads(loaded))


def loaded_by_hooks(*of: str) -> set[str]:
    """What a process has loaded whose modules all have our hooks, without the modules themselves."""
    ours = {hook.install.partition(":")[0] for hook in plugin.HOOKS}
    assert ours >= set(of)
    imports = ", ".join(f"akka_otel_callbacks.verl.{module}" for module in of or sorted(ours))
    return set(json.loads(run(f"import sys, json, {imports}; print(json.dumps([*sys.modules]))")))


def test_no_hook_loads_anything_heavy() -> None:
    """verl imports its trainers and workers also where nobody trains. There, the vocabulary alone would cost more than
    all that the plugin does."""
    unneeded = {
        f"akka_otel_callbacks.{name}" for name in ("common.telemetry", "verl.environment", "verl.worker.companion")
    }
    assert {*HEAVY, *unneeded} & loaded_by_hooks() == set()


def test_the_hooks_of_an_agent_loop_load_no_graders() -> None:
    """verl starts a process for each of several agent loops, and other processes score their rollouts."""
    loaded = loaded_by_hooks("rollout.tags", "rollout.tool_calls", "rollout.stopping", "worker.process")
    assert "akka_otel_callbacks.verl.rollout.scores" in loaded
    assert "akka_otel_callbacks.common.graders" not in loaded


@pytest.mark.parametrize(("value", "hooked"), [("", True), ("0", True), ("1", False), ("true", False)])
def test_everything_can_be_switched_off_but_the_word(value: str, hooked: bool) -> None:
    """verl refuses a logger that it does not know: the switch must not end the training that it was set for."""
    code = (
        "import sys, json, akka_otel_callbacks.verl.plugin\n"
        "print(json.dumps([sorted(finder._hooks) for finder in sys.meta_path if hasattr(finder, '_hooks')]))"
    )
    (modules,) = json.loads(run(code, AKKA_OTEL_DISABLE=value))
    assert set(modules) == ({hook.module for hook in plugin.HOOKS} if hooked else set(plugin.EVEN_DISABLED))


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> dict[plugin.Hook, Exception]:
    monkeypatch.setattr(plugin, "failed", {})
    return plugin.failed


def test_every_hook_names_a_function_of_ours() -> None:
    for hook in plugin.HOOKS:
        module, function = hook.install.split(":")
        source = (Path(plugin.__file__).parent / f"{module.replace('.', '/')}.py").read_text()
        assert f"\ndef {function}(" in source, hook
        assert hook.gives


def test_a_verl_without_the_place_costs_the_figure_and_one_warning(
    failed: dict[plugin.Hook, Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """An old verl: the modules are there, the names in them are not."""
    old = [hook for hook in plugin.HOOKS if "clip_ratio" in hook.install or "batches" in hook.install]
    for hook in old:
        plugin.install(hook, ModuleType(hook.module))
    assert list(failed) == old
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        plugin.warn_of_failed()
    (record,) = caplog.records
    for hook in old:
        assert hook.gives in record.getMessage()
        assert hook.module in record.getMessage()


def test_where_everything_was_hooked_there_is_no_warning(
    failed: dict[plugin.Hook, Exception], caplog: pytest.LogCaptureFixture
) -> None:
    plugin.warn_of_failed()
    assert caplog.records == []


def test_a_hook_of_ours_that_cannot_be_imported_does_not_reach_verls_import(
    failed: dict[plugin.Hook, Exception],
) -> None:
    plugin.install(plugin.Hook("some.module", "no_such_module:install", "nothing"), ModuleType("some.module"))
    assert len(failed) == 1


@pytest.mark.parametrize("policy", ["", "other, AKKA_OTEL"])
def test_verl_takes_the_word_where_doctor_says_so(policy: str) -> None:
    pytest.importorskip("verl", reason="verl is not installed in this environment")
    from akka_otel_callbacks.cli.verl_checks import PLUGINS, refusal

    code = "from verl.utils.tracking import Tracking; print('akka_otel' in Tracking.supported_backend)"
    environ = {**os.environ, PLUGINS: policy}
    done = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True)
    assert (done.stdout.split()[-1] == "True") is (refusal((0, 9), environ) is None)
