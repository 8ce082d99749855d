"""`akka-otel demo`: real trainings in real processes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.cli.table import figure
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="the demo trains with TRL")


def _demo(directory: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "akka_otel_callbacks", "demo", *arguments],
        cwd=directory,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _values(file: Path, metric: Any) -> list[float]:
    """A metric's values in the file, read without any code of the package."""
    found = []
    for line in file.read_text().splitlines():
        for one in json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
            if one["name"] == metric.name:
                points = one.get("gauge", one.get("sum"))["dataPoints"]
                found += [float(point.get("asDouble", point.get("asInt"))) for point in points]
    return found


def _row(text: str, name: str) -> list[str]:
    (row,) = (line.split() for line in text.splitlines() if line.startswith(name + " "))
    return row


@needs_trl
def test_grpo_learns_and_shows_what_it_wrote(tmp_path: Path) -> None:
    result = _demo(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "it/s" not in result.stdout  # no engine noise

    (directory,) = (tmp_path / "akka-otel").iterdir()
    file = directory / "metrics.jsonl"
    rewards = _values(file, names.RL_STEP_REWARD)
    assert _values(file, names.RL_STEP_COUNT)[-1] == 30
    assert rewards[0] < 0.5 < 0.7 < rewards[-1]

    assert _row(result.stdout, "rl.step.count")[1:] == ["30", "step"]
    assert _row(result.stdout, "rl.step.reward")[1:3] == [figure(rewards[-1]), "reward"]
    for term in ("plain_letters", "real_words", "finishes", "total"):
        assert term in result.stdout
    assert _row(result.stdout, "rl.step.duration")[1] == "30"

    relative = directory.relative_to(tmp_path)
    assert f"To look again: akka-otel show {relative}\n" in result.stdout
    shown = CliRunner().invoke(app, ["show", str(directory)])
    assert shown.stdout.strip() in result.stdout
    assert result.stdout.endswith(f"The page is {relative / 'report.html'}\n")
    assert "real_words" in (directory / "report.html").read_text()


@needs_trl
def test_sft_goes_where_the_environment_says(tmp_path: Path) -> None:
    with otlp_sink() as sink:
        result = _demo(tmp_path, "--engine", "trl-sft", "--steps", "6", OTEL_EXPORTER_OTLP_ENDPOINT=sink.http)
    assert (result.returncode, result.stderr) == (0, "")
    assert sink.latest(names.SFT_STEP_COUNT).value == 6
    assert sink.latest(names.SFT_EVAL_LOSS).value > 0
    assert (
        f"The figures went to otlp http/protobuf {sink.http}/v1/metrics, because OTEL_EXPORTER_OTLP_ENDPOINT is set."
        in result.stdout
    )
    assert list(tmp_path.iterdir()) == []


@needs_trl
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    result = _demo(tmp_path, "--engine", "trl-sft", "--steps", "1", "--dir", "taken")
    assert result.returncode == 1
    said = "".join(result.stdout.split())  # a long path may be wrapped
    assert "cannotwritetelemetryto" in said
    assert str(tmp_path / "taken" / "metrics.jsonl") in said
    assert "Nothing was written to taken/metrics.jsonl" in result.stderr


@needs_trl
def test_a_training_that_fails_says_what_the_engine_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from akka_otel_callbacks.cli.demo import QUIET
    from akka_otel_callbacks.demo import trainings

    def failing(*_: Any) -> None:
        print("what the engine said")
        raise RuntimeError("no luck")

    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)  # restored afterwards, as the demo sets them for good
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    monkeypatch.setattr(trainings, "TRAININGS", {"trl-sft": failing})
    result = CliRunner().invoke(app, ["demo", "--engine", "trl-sft"])
    assert isinstance(result.exception, RuntimeError)
    assert "what the engine said" in result.stderr
    assert "what the engine said" not in result.stdout


def test_without_trl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 1
    assert 'pip install "akka-otel-callbacks[trl]"' in result.stderr
