"""Two live processes under one run: seen where it can be seen, counted as attempts, and said."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from akka_otel_callbacks.common import presence
from akka_otel_callbacks.common.presence import Presence, is_published
from akka_otel_callbacks.common.run.attempt import Attempt, begin
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.scripts import PRELUDE
from tests.common.scripts import environment as with_package

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="no abstract socket addresses"),
    pytest.mark.usefixtures("environment"),
]

RUN = "nightly"
SAID = {names.ATTR_RUN_ID.name: RUN}
HERE = partial(is_published, {})
OTHER = """
telemetry = start()
{fork}
print("open", flush=True)
sys.stdin.readline()
telemetry.close()
print("ended", flush=True)
sys.stdin.readline()
"""
FORK = """
begun, begin = os.pipe()
if os.fork() == 0:  # as the workers of a data loader, which may live on where the training is killed
    os.write(begin, b"!")
    sys.stdin.read()
    os._exit(0)
os.read(begun, 1)
"""


@contextmanager
def other_training(folder: Path, fork: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process that publishes attempt 1 of the run, in the same folder."""
    prelude = PRELUDE.replace('run_id="run"', f'run_id="{RUN}"')
    process = subprocess.Popen(
        [sys.executable, "-c", prelude + OTHER.format(fork=fork)],
        env=with_package({}),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert answer(process) == "open\n"
        yield process
        process.kill()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def go_on(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return answer(process)


def is_live(number: int) -> bool:
    """Whether an attempt of the run is published to the folder that this process would publish to."""
    return HERE(Attempt(RUN, number))


def test_a_live_attempt_is_passed_over_until_it_ends(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    with other_training(tmp_path) as other:
        assert [is_live(number) for number in (1, 2)] == [True, False]
        assert begin({}, arguments=SAID, generated_id="", is_published=HERE) == Attempt(RUN, 2)
        assert f"attempt 1 of run {RUN} already, so this training is attempt 2" in log.text
        assert go_on(other) == "ended\n"
        assert not is_live(1), "the process lives, and its training is over"


@pytest.mark.parametrize("fork", ["", FORK], ids=["alone", "with a child"])
def test_a_process_that_is_killed_is_not_live(fork: str, tmp_path: Path) -> None:
    with other_training(tmp_path, fork) as other:
        assert is_live(1)
        other.kill()
        other.wait()
        assert not is_live(1)


def test_in_another_place_nothing_collides(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    with other_training(tmp_path):
        collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
        assert not is_published(collector, Attempt(RUN, 1))
        (tmp_path / "elsewhere").mkdir()
        environment.chdir(tmp_path / "elsewhere")
        assert not is_live(1)


def test_a_number_that_a_person_says_is_kept_and_costs_a_line(
    tmp_path: Path, start: Callable[..., Telemetry], log: pytest.LogCaptureFixture
) -> None:
    said = {**SAID, names.ATTR_RUN_ATTEMPT.name: 1}
    with other_training(tmp_path):
        assert begin({}, arguments=said, generated_id="", is_published=HERE) == Attempt(RUN, 1)
        telemetry = start(run_id=RUN)
    (line,) = [record for record in log.records if record.levelname == "WARNING"]
    assert f"attempt 1 of run {RUN} already. A query" in line.getMessage()
    instance = telemetry.identity.resource().attributes[names.ATTR_SERVICE_INSTANCE_ID.name]
    assert instance == f"{RUN}.1.0.{os.getpid()}", "their series are told apart"


def test_a_mark_is_let_go_of_at_once() -> None:
    """A socket that is left to the garbage collector warns, and may hold its mark for longer."""
    mark = Presence(RUN, 7, [])
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert mark.take()
        assert mark.is_taken()
        mark.leave()
        mark.leave()
        assert not mark.is_taken()
    assert not [said for said in warned if mark._address[1:] in str(said.message)]


def test_without_such_marks_every_training_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    marks = [Presence(RUN, 7, []) for _ in range(2)]
    assert [mark.take() for mark in marks] == [True, True]
    assert [mark.is_taken() for mark in marks] == [False, False]


@pytest.mark.parametrize("failing", ["socket", "bind"])
def test_a_mark_that_cannot_be_made_stops_nothing(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        closed = 0

        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "not here")

        def close(self) -> None:
            Refused.closed += 1
            super().close()

    def none_left(family: int) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(presence.socket, "socket", none_left if failing == "socket" else Refused)
    assert Presence(RUN, 7, []).take()
    assert Refused.closed == (failing == "bind")


def test_two_trainings_of_one_process_collide_only_at_one_time(
    start: Callable[..., Telemetry], log: pytest.LogCaptureFixture
) -> None:
    start().close()
    start()
    start(step_type=None)  # a worker of the same run is no second training
    assert "already" not in log.text
    start()
    assert log.text.count("already. A query") == 1
