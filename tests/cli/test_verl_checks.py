"""What `doctor` says of verl is what verl does."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from akka_otel_callbacks.cli import doctor, verl_checks
from akka_otel_callbacks.cli.verl_checks import Finding, findings, refusal
from akka_otel_callbacks.common.export.selection import select

OURS = EntryPoint("akka_otel", "akka_otel_callbacks.verl.plugin", "verl.plugins")
PLUGINS, MODULES = verl_checks.PLUGINS, verl_checks.MODULES


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_checks, "entry_points", lambda group: [OURS])


POLICIES = {
    None: True,
    "auto": True,
    " AUTO ": True,
    "akka_otel": True,
    "other, Akka_Otel": True,
    "none": False,
    "other": False,
    "": False,
    "akka-otel": False,
}


@pytest.mark.parametrize(("policy", "loads"), POLICIES.items())
def test_what_keeps_the_plugin_out(policy: str | None, loads: bool) -> None:
    reason = refusal((0, 9), {} if policy is None else {PLUGINS: policy})
    assert (reason is None) is loads
    assert loads or PLUGINS in str(reason)


def test_the_module_loads_it_in_any_version() -> None:
    named = {MODULES: "other,akka_otel_callbacks.verl.plugin", PLUGINS: "none"}
    assert refusal((0, 9), named) is refusal((0, 7), named) is None
    assert MODULES in str(refusal((0, 7), {}))


def test_a_package_that_is_on_the_path_only_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verl_checks, "entry_points", lambda group: [])
    assert "install" in str(refusal((0, 9), {}))


def test_where_the_addresses_of_scraped_workers_stand_is_said() -> None:
    environ = {"OTEL_METRICS_EXPORTER": "prometheus", "AKKA_OTEL_DIR": "/shared/run"}
    (finding,) = findings((0, 9), environ, select(environ, "run"))
    assert finding.ok is None
    assert "/shared/run/targets-*.json on its own node" in finding.text
    assert list(findings((0, 9), {}, select({}, "run"))) == []


def test_a_switch_that_is_set_is_named_and_no_fault() -> None:
    environ = {"AKKA_OTEL_DISABLE": "1", PLUGINS: "none"}
    (finding,) = findings((0, 9), environ, select(environ, "run"))
    assert finding == Finding(None, "AKKA_OTEL_DISABLE is set: the logger akka_otel does nothing")


@pytest.mark.parametrize(("policy", "status"), [("auto", 0), ("none", 1)])
def test_doctor_ends_as_for_any_other_fault(policy: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from akka_otel_callbacks.cli import app

    monkeypatch.setattr(doctor, "_version", lambda package: "0.9.1" if package == "verl" else None)
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(PLUGINS, policy)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == status, result.output
    assert ("verl refuses the logger akka_otel" in " ".join(result.output.split())) is (status == 1)
