"""`akka-otel show` on files of anybody: a clear line and the right exit code, never a traceback or a hang."""

from __future__ import annotations

import copy
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.cli.output import LONGEST, console_on, printable
from akka_otel_callbacks.common.vocabulary import names
from tests.support.recordings import session

CODES = {0: "shown", 1: "no telemetry", 2: "no such file"}
BIG = 10**309


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A line with every kind of metric."""
    path = tmp_path_factory.mktemp("good") / "metrics.jsonl"
    with session(path, **{names.ATTR_RUN_ATTEMPT.name: 2, "flag": True, "list": ["a", "b"]}) as recording:
        recording.meter.create_gauge("gauge", "s").set(0.5, {"term": "a"})
        recording.meter.create_counter("counter", "{step}").add(1)
        recording.meter.create_up_down_counter("level", "By").add(-1)
        for name in ("explicit", "exponential"):
            for value in (0, 0.5, 3):
                recording.meter.create_histogram(name, "s").record(value)
        recording.export()
    return json.loads(path.read_text())


def _show(path: Path) -> Result:
    return CliRunner().invoke(app, ["show", str(path)])


def _checked(result: Result) -> Result:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in CODES
    said = result.stdout if result.exit_code == 0 else result.stderr
    assert said.strip()
    assert "Traceback" not in result.output
    assert not set(result.output) & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}
    return result


# -- whatever a line holds

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [BIG, -BIG, 2**64, 1.5, 1e308, 5e-324, "NaN", "Infinity", "1e999", "\ud800", "\x1b[2J\x9b1A\r", ""]
    )
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in _places(item, (*path, key)))]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(data=st.data())
def test_no_change_of_a_good_line_can_stop_it(data: st.DataObject, good: dict, tmp_path: Path) -> None:
    document = {"root": copy.deepcopy(good)}
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(_places(document)[1:]))
        holder: Any = document
        for key in parents:
            holder = holder[key]
        change = data.draw(st.sampled_from(["replace", "remove", "double"]))
        if change == "replace":
            holder[last] = data.draw(VALUES)
        elif change == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[last]))
        elif holder is not document:
            del holder[last]
    file = tmp_path / "metrics.jsonl"
    for lines in ([document], [{"root": good}, document, {"root": good}]):
        file.write_text("".join(json.dumps(line["root"]) + "\n" for line in lines))
        result = _checked(_show(file))
    assert result.exit_code == 0
    assert "gauge" in result.stdout, "the good lines are shown"


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000,
        b'{"resourceMetrics":' * 5_000,
        b'{"resourceMetrics":[{"resource":{"attributes":[{"key":"k","value":{"arrayValue":' + b"[" * 900 + b"]" * 900,
        b"1" * 10_000,
        b'{"resourceMetrics":null}',
        b'{"resourceMetrics":[null]}',
        b'{"resourceMetrics":{}}',
        b"null",
        b"\xff\xfe",
        b"\x00" * 1000,
        b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","histogram":{"dataPoints":[{"count":1e999}]}}]}]}]}',
    ],
    ids=range(11),
)
def test_a_line_that_is_no_export_is_named(line: bytes, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(line)
    result = _checked(_show(file))
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [f"{file}: its only line is no OTLP/JSON export."],
    )


def test_null_is_the_default(good: dict, tmp_path: Path) -> None:
    """As protobuf's JSON has it."""
    nulled = copy.deepcopy(good)
    (resource_metrics,) = nulled["resourceMetrics"]
    resource_metrics["resource"]["attributes"].append({"key": "nothing", "value": None})
    for metric in resource_metrics["scopeMetrics"][0]["metrics"]:
        for kind in ("gauge", "sum", "histogram", "exponentialHistogram"):
            data = metric.setdefault(kind, None)
            for point in data["dataPoints"] if data else ():
                point["attributes"] = point["flags"] = None
        metric["unit"] = None
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps(nulled))
    result = _checked(_show(file))
    assert result.exit_code == 0
    assert "could not be read" not in result.stdout


def test_a_line_longer_than_any_export_is_no_export(
    good: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(good)
    monkeypatch.setattr("akka_otel_callbacks.reading.lines.LONGEST_LINE", len(line) + 10)
    file = tmp_path / "metrics.jsonl"
    file.write_text(f"{line}\n{' ' * (3 * len(line))}{line}\n{line}\n{line}")
    assert "1 of 4 lines of metrics.jsonl could not be read" in _checked(_show(file)).stdout


# -- what a terminal would obey, and what a stream cannot write

ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e\u2028\ud800end"


def _foreign(path: Path, text: str) -> None:
    label = {"key": text, "value": {"stringValue": text}}
    metric = {"name": text, "unit": text, "gauge": {"dataPoints": [{"asDouble": 1, "attributes": [label]}]}}
    resource = {"attributes": [{"key": names.ATTR_RUN_ID.name, "value": {"stringValue": text}}]}
    document = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}]}
    path.write_text(json.dumps(document))


def test_no_text_of_a_file_commands_the_terminal(tmp_path: Path) -> None:
    _foreign(tmp_path / "metrics.jsonl", ESCAPES)
    result = _checked(_show(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.count("end") == 5, "run, metric, the label's key and value, unit"
    assert "\u202e" not in result.stdout
    assert "\u2028" not in result.stdout


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    _foreign(tmp_path / "metrics.jsonl", "long" * 25_000)
    assert len(_checked(_show(tmp_path)).stdout) < 10 * LONGEST


def test_a_path_commands_no_terminal_either(tmp_path: Path) -> None:
    for name in ("no\x1b[2Jwhere", "\udcff"):  # the latter is a byte that is no UTF-8
        result = _checked(_show(tmp_path / name))
        assert (result.exit_code, "cannot be read: No such file" in result.stderr) == (2, True)


@given(st.text())
def test_a_printable_text_is_one_line_that_utf8_can_write(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert len(shown) <= LONGEST
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


def _run(path: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONUTF8": "0", **variables}
    command = [sys.executable, "-m", "akka_otel_callbacks", "show", str(path)]
    return subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_that_knows_fewer_characters_is_written_what_it_knows(
    encoding: str, good: dict, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.jsonl"
    second = copy.deepcopy(good)
    gauge = second["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    gauge["gauge"]["dataPoints"][0] |= {"asDouble": 1.5, "timeUnixNano": "9" * 18 + "0"}
    file.write_text(json.dumps(good) + "\n" + json.dumps(second))
    done = _run(tmp_path, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode(encoding)
    assert "1.5  s        0.5    0.5   1.5  _#" in shown, "the gauge's course"
    assert "run-1 " in shown


def test_a_lone_surrogate_does_not_stop_a_stream() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console_on(stream).print("a\ud800b")
    stream.seek(0)
    assert stream.read() == "a?b\n"


def test_a_stdout_that_is_closed_or_full_is_no_traceback(good: dict, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(good))
    show = f"{sys.executable} -m akka_otel_callbacks show {tmp_path}"
    for redirection, code in ((">&-", 0), ("> /dev/full", 1), ("| true", 0)):
        done = subprocess.run(
            f"{show} {redirection}", shell=True, capture_output=True, text=True, timeout=60, check=False
        )
        assert "Traceback" not in done.stderr, redirection
        assert done.returncode == code, redirection
    full = subprocess.run(f"{show} > /dev/full", shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert full.stderr == "The output cannot be written: No space left on device.\n"


# -- what is no file


@pytest.mark.parametrize("directly", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_what_is_no_file_is_not_waited_for(kind: str, directly: bool, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
        if directly:  # a folder may hold a run
            (path / "metrics.jsonl").mkdir()
    result = _checked(_show(path if directly else tmp_path))
    assert result.exit_code == 2
    assert "cannot be read: " in result.stderr


@pytest.mark.parametrize("name", ["x" * 300, "loop", "folder/metrics.jsonl/inside"])
def test_a_path_that_the_system_refuses(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "metrics.jsonl").touch()
    assert _checked(_show(tmp_path / name)).exit_code == 2


def test_a_run_of_pipes_only_is_no_hang(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    os.mkfifo(tmp_path / "run" / "metrics.jsonl")
    assert _checked(_show(tmp_path)).exit_code == 2
