"""A file that several write, on disks that fill up, and under hands that remove and replace it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.export.json_lines import JsonLines
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.common.scripts import run


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in log.records if record.levelname == "WARNING"]


def test_a_disk_that_takes_half_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = JsonLines(tmp_path / "lines.jsonl")
    assert target.write({"line": 1})
    whole = target._file

    class Half:
        """The file, on a disk that takes five bytes of a write."""

        def __getattr__(self, name: str) -> Any:
            return getattr(whole, name)

        def write(self, line: bytes) -> int:
            return whole.write(line[:5])

    target._file = Half()
    assert not target.write({"line": 2})
    assert lines(tmp_path / "lines.jsonl") == [{"line": 1}]
    target._file = whole
    assert target.write({"line": 3})
    target.close()
    assert lines(tmp_path / "lines.jsonl") == [{"line": 1}, {"line": 3}]


def test_half_a_line_of_a_crashed_attempt_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"line":1}\n{"li')
    target = JsonLines(path)
    assert target.write({"line": 2})
    assert target.write({"line": 3})
    target.close()
    assert path.read_bytes() == b'{"line":1}\n{"li\n{"line":2}\n{"line":3}\n'


class Short:
    """A file that takes five bytes of a write, before or after another writer's line comes."""

    def __init__(self, file: Any, between: Callable[[], object]) -> None:
        self._file, self._between = file, between

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, line: bytes) -> int:
        written = self._file.write(line[:5])
        self._between()
        return written


def test_another_s_line_after_our_half_one_is_not_cut(tmp_path: Path) -> None:
    """It writes without our lock, as a program of another make does."""
    path = tmp_path / "lines.jsonl"
    target = JsonLines(path)
    assert target.write({"line": 1})
    whole = target._file

    def other() -> None:
        with open(path, "ab") as file:
            file.write(b'\n{"other":1}\n')

    target._file = Short(whole, other)
    assert not target.write({"line": 2})
    target._file = whole
    assert target.write({"line": 3})
    target.close()
    assert path.read_bytes() == b'{"line":1}\n{"lin\n{"other":1}\n{"line":3}\n'


def test_a_writer_of_ours_never_continues_another_s_half_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    first, second = JsonLines(path), JsonLines(path)
    assert first.write({"first": 1})
    assert second.write({"second": 1})
    whole = first._file
    first._file = Short(whole, lambda: None)
    assert not first.write({"first": 2})
    assert second.write({"second": 2})
    first._file = whole
    assert first.write({"first": 3})
    assert lines(path) == [{"first": 1}, {"second": 1}, {"second": 2}, {"first": 3}]
    first.close(), second.close()


TWO_WRITERS = """
import resource
from pathlib import Path
from akka_otel_callbacks.common.export.json_lines import JsonLines
path = Path("lines.jsonl")
limit = 20_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
child = os.fork()
name = "child" if child == 0 else "parent"
target = JsonLines(path)
written = [n for n in range(400) if target.write({"name": name, "n": n, "padding": "x" * (50 + 7 * n % 90)})]
Path(f"{name}.json").write_text(json.dumps(written))
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_FSIZE")
def test_two_writers_on_a_full_disk_keep_every_line_that_was_written(tmp_path: Path) -> None:
    done = run(TWO_WRITERS, {}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot write telemetry") == 2, "one warning each"
    found: dict[str, list[int]] = {"parent": [], "child": []}
    for line in lines(tmp_path / "lines.jsonl"):
        found[line["name"]].append(line["n"])
    for name, written in found.items():
        assert written == json.loads((tmp_path / f"{name}.json").read_text()), name
    assert len(found["parent"]) + len(found["child"]) > 100


def replaced(path: Path) -> None:
    path.rename(path.with_suffix(".1"))
    path.write_text('{"somebody":"else"}\n')


GONE = {
    "the file": lambda path: path.unlink(),
    "its folder": lambda path: shutil.rmtree(path.parent),
    "rotated": lambda path: path.rename(path.with_suffix(".1")),
    "its folder moved": lambda path: path.parent.rename(path.parent.with_name("moved")),
    "replaced": replaced,
}


@pytest.mark.parametrize("go", GONE.values(), ids=GONE.keys())
def test_a_file_that_is_gone_is_begun_anew_with_one_warning(
    go: Callable[[Path], None], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run" / "lines.jsonl"
    target = JsonLines(path)
    assert target.write({"line": 1})
    for number in (2, 3):
        go(path)
        assert target.write({"line": number})
        path.with_suffix(".1").unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "moved", ignore_errors=True)
    target.close()
    assert lines(path)[-1] == {"line": 3}
    (warning,) = warnings(log)
    assert str(path) in warning
    assert "was removed or replaced" in warning


def test_a_folder_that_cannot_be_made_again_is_one_warning(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run" / "lines.jsonl"
    target = JsonLines(path)
    assert target.write({"line": 1})
    shutil.rmtree(path.parent)
    path.parent.write_text("in the way")
    assert not target.write({"line": 2})
    assert not target.write({"line": 3})
    path.parent.unlink()
    assert target.write({"line": 4})
    assert lines(path) == [{"line": 4}]
    assert len(warnings(log)) == 2, "it was removed, and it cannot be written"


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with a name")
def test_a_pipe_of_that_name_does_not_hold_the_writer(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "lines.jsonl")
    target = JsonLines(tmp_path / "lines.jsonl")
    assert not any(target.write({"padding": "x" * 10_000}) for _ in range(10))
    (warning,) = warnings(log)
    assert "it is a pipe" in warning


def test_a_working_folder_that_is_gone_before_the_start(
    start: Callable[..., Telemetry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    gone, temporary = tmp_path / "gone", tmp_path / "temporary"
    gone.mkdir(), temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(gone)
    gone.rmdir()
    telemetry = start()
    telemetry.capture(Report(grpo_step(1)), step=True)
    telemetry.close()
    monkeypatch.chdir(tmp_path)
    assert names.RL_STEP_REWARD.name in (temporary / "akka-otel/run/metrics.jsonl").read_text()
    assert all("the working folder is gone" in warning for warning in warnings(log))


def test_a_working_folder_that_is_removed_in_the_middle(
    start: Callable[..., Telemetry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    telemetry = start()
    telemetry.capture(Report(grpo_step(1)), step=True)
    assert telemetry.flush(10)
    shutil.rmtree(folder)
    telemetry.capture(Report(grpo_step(2)), step=True)
    telemetry.close()
    monkeypatch.chdir(tmp_path)
    assert names.RL_STEP_REWARD.name in (folder / "akka-otel/run/metrics.jsonl").read_text()
