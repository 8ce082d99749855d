"""`akka-otel show`: what it prints and how it ends."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.common.vocabulary import names
from tests.support.recordings import session


def _show(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["show", *map(str, arguments)])


def _record(path: Path, run_id: str = "run-1") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with session(path, run_id) as recording:
        recording.meter.create_gauge("the.figure", "s").set(0.5)
        recording.export()


def test_a_run_directory_and_its_file_show_the_same(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    _record(file)
    by_directory, by_file = _show(tmp_path), _show(file)
    assert by_directory.exit_code == by_file.exit_code == 0
    now = re.compile(r"last heard of .* ago")
    assert now.sub("", by_directory.stdout) == now.sub("", by_file.stdout)
    assert "the.figure" in by_file.stdout
    assert "0.5" in by_file.stdout


def test_all_sessions(tmp_path: Path) -> None:
    for run_id in ("run-1", "run-2"):
        _record(tmp_path / "metrics.jsonl", run_id)
    assert "run-1" not in _show(tmp_path).stdout
    everything = _show(tmp_path, "--all").stdout
    assert "run-1" in everything
    assert "run-2" in everything


def test_a_torn_file_is_shown_with_its_loss(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    _record(file)
    with file.open("ab") as end:
        end.write(file.read_bytes()[:100])
    result = _show(tmp_path)
    assert result.exit_code == 0
    assert "the.figure" in result.stdout
    assert "1 of 2 lines of metrics.jsonl could not be read" in result.stdout


def test_an_empty_file_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    result = _show(tmp_path)
    assert result.exit_code == 0
    assert "no figures yet" in result.stdout


@pytest.mark.parametrize("name", ["nowhere", "nowhere/metrics.jsonl"])
def test_no_such_path(tmp_path: Path, name: str) -> None:
    result = _show(tmp_path / name)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"{tmp_path / name} cannot be read: No such file or directory."
    assert result.stdout == ""


def test_a_directory_with_the_figures_of_another_process_alone(tmp_path: Path) -> None:
    _record(tmp_path / "metrics-checkpoints-94aff5f2.jsonl")
    result = _show(tmp_path)
    assert result.exit_code == 0
    assert "the.figure" in result.stdout


def test_the_workers_of_a_run_are_named_and_shown_on_demand(tmp_path: Path) -> None:
    for worker in ("", *(f"-worker.{rank}" for rank in range(6))):
        with session(
            tmp_path / f"metrics{worker}.jsonl", **{names.ATTR_SERVICE_INSTANCE_ID.name: f"id{worker}"}
        ) as one:
            if not worker:
                one.meter.create_counter(names.RL_STEP_COUNT.name).add(1)
            one.meter.create_gauge(f"of{worker}").set(1)
            one.export()
    shown = _show(tmp_path).stdout
    assert "6 more processes (--all shows them): id-worker.0, id-worker.1, id-worker.2, id-worker.3, …" in shown
    assert "of-worker" not in shown
    everything = _show(tmp_path, "--all").stdout
    assert "process id-worker.5\n" in everything
    assert all(f"of-worker.{rank}" in everything for rank in range(6))


def test_a_directory_without_a_run(tmp_path: Path) -> None:
    result = _show(tmp_path)
    assert result.exit_code == 2
    assert "holds no telemetry" in result.stderr


def test_of_a_folder_of_runs_the_newest_is_shown(tmp_path: Path) -> None:
    for age, run in enumerate(["newest", "older", "oldest"]):
        _record(tmp_path / run / "metrics.jsonl", f"run-{age}")
        os.utime(tmp_path / run / "metrics.jsonl", (1000 - age, 1000 - age))
    result = _show(tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith("run-0\n")
    assert result.stdout.strip().endswith(f"{tmp_path} holds 3 runs. This is the newest, newest.")


def test_a_file_that_is_no_telemetry(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello\nworld\n")
    result = _show(file)
    assert result.exit_code == 1
    assert "none of its 2 lines is an OTLP/JSON export" in result.stderr


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    result = _show(tmp_path)
    assert result.exit_code == 2
    assert "cannot be read: Is a directory" in result.stderr
