"""`akka-otel targets`: the processes that a Prometheus finds, and the files of killed ones."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.common.export.address_files import HOST, PID, AddressFile

HERE = {HOST: socket.gethostname(), PID: "17"}


def targets(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["targets", *arguments])


def put(folder: Path, name: str, address: str, **labels: str) -> Path:
    path = folder / name
    path.write_text(json.dumps([{"targets": [address], "labels": {**HERE, **labels}}]))
    return path


def test_it_lists_the_living_and_removes_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    alive = AddressFile(tmp_path, "localhost:9464")
    alive._write({"targets": ["localhost:9464"], "labels": {**HERE, "instance": "run.1.0"}})
    dead = put(tmp_path, "targets-dead.json", "localhost:9465")
    put(tmp_path, "targets-far.json", "far:9464", **{HOST: "far", "instance": "run.1.1"})
    result = targets()
    alive.withdraw()
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines == [
        "targets-dead.json is removed: its process is gone.",
        "far:9464 run.1.1 process 17 on far; whether it lives cannot be told from here",
        f"localhost:9464 run.1.0 process 17 on {socket.gethostname()}",
    ]
    assert not dead.exists()


def test_a_folder_without_any(tmp_path: Path) -> None:
    result = targets(str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.strip() == f"No process is found by {tmp_path}/targets-*.json."


def test_what_is_no_folder_ends_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, reason in (("none", "does not exist"), ("file", "cannot be read: Not a directory")):
        result = targets(str(tmp_path / folder))
        assert result.exit_code == 2
        assert reason in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_no_file_commands_the_terminal(tmp_path: Path) -> None:
    put(tmp_path, "targets-\x1b[2J.json", "\x1b[2Jhost:1", instance="\x1b]0;title\x07", **{HOST: "\x1b[31mfar"})
    result = targets(str(tmp_path))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout


def test_doctor_says_what_is_served_and_fails_where_a_port_or_a_folder_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = AddressFile(tmp_path / "runs", "localhost:7")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path / "runs"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(taken.getsockname()[1]))
        alive._write({"targets": ["localhost:7"], "labels": HERE})
        in_use = CliRunner().invoke(app, ["doctor"])
    free = CliRunner().invoke(app, ["doctor"])
    alive.withdraw()
    (tmp_path / "file").touch()
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path / "file"))
    hindered = CliRunner().invoke(app, ["doctor"])
    said = [" ".join(result.stdout.split()) for result in (in_use, free, hindered)]
    assert [result.exit_code for result in (in_use, free, hindered)] == [1, 0, 1]
    assert "is in use: a training takes another one" in said[0]
    assert "there now: localhost:7" in said[0]
    assert "the address is free" in said[1]
    assert "is in the way" in said[2]
