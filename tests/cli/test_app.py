"""The command itself: how it starts and what it does not load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import akka_otel_callbacks
from akka_otel_callbacks.cli import app

HEAVY = "torch transformers trl datasets opentelemetry google.protobuf"


@pytest.mark.parametrize("command", [[], ["demo"], ["show"], ["watch"], ["targets"], ["doctor"]])
def test_help_says_what_a_command_does(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.stdout


def test_the_module_is_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "akka_otel_callbacks", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: akka-otel [OPTIONS] COMMAND" in result.stdout


@pytest.mark.parametrize("command", [["--help"], ["demo", "--help"], ["nonsense"], ["doctor"]])
def test_a_stream_in_ascii_is_no_traceback(command: list[str], tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "akka_otel_callbacks", *command],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        cwd=tmp_path,
        check=False,
    )
    assert process.returncode == (2 if command == ["nonsense"] else 0)
    assert b"Traceback" not in process.stderr


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"akka-otel-callbacks {akka_otel_callbacks.__version__}\n")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from akka_otel_callbacks.cli import app\n"
        "try: app(['--help'])\n"
        f"except SystemExit: print('loaded:', [m for m in {HEAVY!r}.split() if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "loaded: []"


def test_a_wrong_call_is_a_usage_error() -> None:
    for arguments in (
        ["nonsense"],
        ["show", "--json", "--csv"],
        ["demo", "--steps", "0"],
        ["demo", "--engine", "none"],
    ):
        assert CliRunner().invoke(app, arguments).exit_code == 2
