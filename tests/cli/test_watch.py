"""`akka-otel watch`, beside real processes that write."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.follower import Follower, is_over
from tests.report.recordings import record, recording, rl_step
from tests.support.otlp_sink import wait_until

RUN = """
import os, sys, time
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.reports import Report
telemetry = Telemetry.start(identify(os.environ, engine={}, run_id="watched"), RLStep)
number = 0
for said in sys.stdin:  # a step for each line
    if said.strip() == "fail":
        telemetry.close(ValueError("secret"))
        sys.exit()
    number += 1
    telemetry.capture(Report(RLStep(number=number, reward=number / 10)), step=True)
    telemetry.flush(5)
    print(number, flush=True)
telemetry.close()
"""


class Training:
    """A process that makes a step when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "AKKA_OTEL_DIR": str(folder), "OTEL_METRICS_EXPORTER": "file"}
            | {"OTEL_TRACES_EXPORTER": "file"},
        )

    def say(self, word: str) -> None:
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def step(self) -> None:
        self.say("step")
        assert self.process.stdout.readline()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    started = Training(tmp_path / "akka-otel" / "watched")
    yield started
    started.process.kill()
    started.process.wait()


class Screen:
    """A terminal that a command runs on."""

    def __init__(self, arguments: list[str], folder: Path, kind: str = "xterm") -> None:
        self.text = ""
        pid, self.terminal = pty.fork()
        if pid == 0:  # the command
            os.chdir(folder)
            os.environ |= {"COLUMNS": "120", "LINES": "30", "TERM": kind, "PYTHONPATH": os.pathsep.join(sys.path)}
            os.execv(sys.executable, [sys.executable, "-m", "akka_otel_callbacks", *arguments])
        self.pid = pid

    def shows(self, text: str) -> bool:
        while select.select([self.terminal], [], [], 0)[0]:
            try:
                self.text += os.read(self.terminal, 65536).decode(errors="replace")
            except OSError:  # the command ended
                break
        return text in self.text

    def exit_code(self) -> int:
        """Reads what is left until the command ends."""
        status: list[int] = []

        def ended() -> bool:
            self.shows("")
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            status.append(code)
            return pid != 0

        wait_until(ended)
        self.shows("")
        return os.waitstatus_to_exitcode(status[-1])


@contextmanager
def screen(folder: Path, *arguments: str, kind: str = "xterm") -> Iterator[Screen]:
    opened = Screen(["watch", *arguments], folder, kind)
    try:
        yield opened
    finally:
        os.close(opened.terminal)


HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""What hides the cursor, and what shows it again."""


def test_a_run_is_watched_from_before_it_begins_to_its_end(tmp_path: Path, training: Training) -> None:
    with screen(tmp_path) as seen:
        wait_until(lambda: seen.shows("Waiting for a run in akka-otel"))
        training.step()
        wait_until(lambda: seen.shows("step 1 "))
        assert "running" in seen.text
        training.step()
        wait_until(lambda: seen.shows("step 2 "))
        assert re.search(r"rl\.step\.reward\s+0\.2\s+reward\s+0\.1\s+0\.1\s+0\.2", seen.text)
        training.end()
        assert seen.exit_code() == 0
    ended = seen.text.rpartition("watched")[2]
    assert "finished" in ended
    assert "trace " in ended, "at the end all that show prints"
    assert seen.text.rindex(SHOW) > seen.text.rindex(HIDE)


@pytest.mark.parametrize("stop", ["Ctrl-C", "SIGTERM"])
def test_a_stop_ends_the_watching_and_leaves_run_and_terminal_whole(
    stop: str, tmp_path: Path, training: Training
) -> None:
    training.step()
    with screen(tmp_path, "akka-otel/watched") as seen:
        wait_until(lambda: seen.shows("step 1 "))
        if stop == "Ctrl-C":
            os.write(seen.terminal, b"\x03")
        else:
            os.kill(seen.pid, signal.SIGTERM)
        assert seen.exit_code() == 0
    assert "Traceback" not in seen.text
    assert seen.text.rindex(SHOW) > seen.text.rindex(HIDE)
    training.step()
    assert training.process.poll() is None


def test_a_terminal_that_cannot_draw_gets_lines(tmp_path: Path, training: Training) -> None:
    training.step()
    with screen(tmp_path, "akka-otel", kind="dumb") as seen:
        wait_until(lambda: seen.shows("running · last heard of"))
        training.end()
        wait_until(lambda: seen.shows("finished · step 1"))
    assert HIDE not in seen.text


def _lines(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "akka_otel_callbacks", "watch", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _until(text: str, watch: subprocess.Popen[str]) -> Iterator[str]:
    """What it prints, up to the line with the text."""
    assert watch.stdout is not None
    for line in watch.stdout:
        yield line
        if text in line:
            return


def test_without_a_terminal_a_step_is_a_line_and_a_failed_run_is_told(tmp_path: Path, training: Training) -> None:
    training.step()
    watch = _lines(tmp_path, "akka-otel")
    lines = [*_until("step 1", watch)]
    training.step()
    lines += _until("step 2", watch)
    training.say("fail")
    out, err = watch.communicate(timeout=60)
    said = "".join([*lines, out])
    assert (watch.returncode, err) == (1, "")
    assert "step 2 · took" in said
    assert "rl.step.reward 0.2" in said
    assert "failed with ValueError · step 2" in said
    assert "\x1b" not in said


def test_a_run_whose_process_was_killed_is_over(tmp_path: Path, training: Training) -> None:
    training.step()
    follower = Follower(tmp_path / "akka-otel")
    assert not is_over(follower.look())
    training.process.kill()
    training.process.wait()
    assert is_over(follower.look())
    watch = _lines(tmp_path)
    out, _ = watch.communicate(timeout=60)
    assert watch.returncode == 1
    assert "no end recorded · last heard of" in out
    assert "its process is gone" in out


@pytest.mark.parametrize("web", [(), ("--web",)])
def test_what_is_there_and_cannot_be_read_is_not_waited_for(tmp_path: Path, web: tuple[str, ...]) -> None:
    (tmp_path / "metrics.jsonl").mkdir()  # root may read any file
    watch = _lines(tmp_path, ".", *web)
    out, err = watch.communicate(timeout=60)
    assert (watch.returncode, out) == (2, "")
    assert err == "metrics.jsonl cannot be read: Is a directory.\n"


def test_without_a_terminal_the_wait_is_told_once(tmp_path: Path, training: Training) -> None:
    watch = _lines(tmp_path)
    lines = [*_until("Waiting for a run in akka-otel", watch)]
    training.step()
    lines += _until("step 1", watch)
    watch.terminate()
    watch.communicate(timeout=60)
    assert len(lines) == 2


def test_a_replayed_run_is_over(tmp_path: Path) -> None:
    """Its log does not tell how it ended, and no process of it is on this machine."""
    record(tmp_path / "past", 3, **{names.ATTR_REPLAY_FORMAT.name: names.ReplayFormat.VERL_FILE})
    record(tmp_path / "present", 3)
    assert is_over(Follower(tmp_path / "past").look())
    assert not is_over(Follower(tmp_path / "present").look())
    result = CliRunner().invoke(app, ["watch", str(tmp_path / "past")])
    assert "no end recorded" in result.stdout
    assert "step 3" in result.stdout
    assert "Nothing more will come." in result.stdout
    assert result.exit_code == 0, "it is not known to have failed"


def test_another_run_that_writes_to_the_same_files_does_not_take_its_place(tmp_path: Path) -> None:
    with recording(tmp_path, run_id="mine") as mine:
        mine.step(rl_step(1, 10))
        mine.export()
        follower = Follower(tmp_path)
        assert follower.look().name == "mine"
        record(tmp_path, 5, run_id="other")
        assert (follower.look().name, follower.look().step) == ("mine", 1)
        mine.step(rl_step(2, 10))
        mine.export()
        assert follower.look().step == 2


def test_a_page_of_a_run_that_is_over_is_not_served(tmp_path: Path) -> None:
    """It would end before anybody could look at it."""
    record(tmp_path / "past", 3, **{names.ATTR_REPLAY_FORMAT.name: names.ReplayFormat.VERL_FILE})
    result = CliRunner().invoke(app, ["watch", "--web", str(tmp_path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "http" not in result.stdout
    assert f"akka-otel report {tmp_path / 'past'} writes" in result.stdout


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["watch", str(tmp_path / "nowhere")])
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path / 'nowhere'} does not exist.\n")
