"""`akka-otel doctor`: what it says of the environment, and what it never says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app, doctor
from akka_otel_callbacks.common import names
from tests.support.otlp_sink import otlp_sink, refusing


@pytest.fixture(autouse=True)
def _empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def _doctor(monkeypatch: pytest.MonkeyPatch, **environ: str) -> Result:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(app, ["doctor"])


def _row(result: Result, *starts: str) -> str:
    return next(line for line in result.stdout.splitlines() if line.split()[: len(starts)] == list(starts))


def test_the_embedded_default(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(monkeypatch, AKKA_OTEL_DIR="figures")
    assert result.exit_code == 0
    row = _row(result, "✓", "metrics")
    assert "file figures/metrics.jsonl" in row
    assert "no exporter and no OTLP endpoint is configured" in row
    assert "file figures/traces.jsonl" in _row(result, "✓", "traces")


def test_a_collector_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_sink() as sink:
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=sink.http)
    assert result.exit_code == 0
    assert f"otlp http/protobuf {sink.http}/v1/metrics" in _row(result, "✓", "metrics")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is set" in _row(result, "✓", "metrics")
    assert result.stdout.count("accepted an empty export") == 2


def test_a_collector_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing() as url:
        result = _doctor(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT=url)
    assert result.exit_code == 1
    assert _row(result, "✗", "metrics")
    assert "Connection refused" in result.stdout


def test_a_wrong_value_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(monkeypatch, OTEL_METRICS_EXPORTER="promtheus")
    assert result.exit_code == 1
    assert "promtheus" in _row(result, "✗", "warning")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"), ({"OTEL_METRICS_EXPORTER": "none"}, "none")],
)
def test_nothing_exported_is_said_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], reason: str
) -> None:
    result = _doctor(monkeypatch, **environ)
    assert result.exit_code == 0
    assert reason in _row(result, "·", "metrics", "not", "exported")


def test_engines_are_found_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"trl": "0.22.1", "transformers": "4.40.0", "torch": "2.13.0+cpu", "verl": "0.9.1.dev0"}
    monkeypatch.setattr(doctor, "_version", found.get)
    result = _doctor(monkeypatch)
    assert "supported with fewer figures: 0.24 or newer has them all" in _row(result, "✓", "trl", "0.22.1")
    assert "not supported: 4.57 or newer is" in _row(result, "✗", "transformers", "4.40.0")
    assert _row(result, "✓", "torch", "2.13.0+cpu", "supported")
    assert _row(result, "✓", "verl", "0.9.1.dev0", "supported")
    assert _row(result, "·", "ray", "not", "installed")


def test_the_installed_engine_is_the_one_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl", reason="needs TRL installed")
    assert _row(_doctor(monkeypatch), "✓", "trl", trl.__version__)


def test_the_identity_is_the_one_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _doctor(
        monkeypatch,
        OTEL_SERVICE_NAME="my-job",
        OTEL_RESOURCE_ATTRIBUTES=f"{names.ATTR_RUN_ID.name}=run-9,team=research",
    )
    assert _row(result, names.ATTR_RUN_ID.name).split()[1] == "run-9"
    assert _row(result, "service.name").split()[1] == "my-job"
    assert _row(result, "team").split()[1] == "research"


def test_no_secret_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing() as url:
        result = _doctor(
            monkeypatch,
            OTEL_EXPORTER_OTLP_ENDPOINT=url.replace("//", "//me:S3CRETpw@")
            + "/otlp/S3CRETpath0123456789/?k=S3CRETquery",
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20S3CREThdr,x-scope=S3CRETscope",
            OTEL_RESOURCE_ATTRIBUTES="api_key=S3CRETattr,note=hf_S3CRETnote,repo=https://u:S3CRETrepo@git.example/x",
        )
    assert "S3CRET" not in result.output
    assert "authorization=***, x-scope=***" in result.stdout
    assert "https://***@git.example/x" in result.stdout


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from akka_otel_callbacks.cli import app\n"
        "try: app(['doctor'])\n"
        "except SystemExit: pass\n"
        "print('loaded:', [m for m in ('torch', 'transformers', 'trl', 'ray', 'verl') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "loaded: []"
