"""The run's ID and attempt in verl's checkpoints, where verl itself finds them."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.run.attempt import FILE, Attempt
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.attempts import TRACKER, Keeper, latest, resumed, resumed_folder

RL: dict[str, Any] = {"actor_rollout_ref": {}}
MODE, SOURCE = names.ATTR_CHECKPOINT_RESTORE_MODE.name, names.ATTR_CHECKPOINT_SOURCE_RUN_ID.name
SOURCE_ATTEMPT = names.ATTR_CHECKPOINT_SOURCE_ATTEMPT.name
SOURCE_STEP = names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP.name


def save(folder: Path, step: int) -> Path:
    """What verl's trainers leave."""
    checkpoint = folder / f"global_step_{step}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (folder / TRACKER).write_text(str(step))
    return checkpoint


def config(folder: Any, base: dict[str, Any] = RL, **trainer: Any) -> dict[str, Any]:
    return {**base, "trainer": {"default_local_dir": str(folder), "resume_mode": "auto", **trainer}}


@contextmanager
def kept(
    settings: Any, attempt: Attempt, describe: Callable[[Any], object] = lambda attributes: None
) -> Iterator[Keeper]:
    keeper = Keeper(settings, attempt, look_s=0.01, describe=describe)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.close()
        assert not keeper.is_alive()


def eventually(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 10
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def test_every_new_checkpoint_gets_the_attempt(tmp_path: Path) -> None:
    with kept(config(tmp_path), Attempt("run", 1)):
        first = save(tmp_path, 5)
        eventually(lambda: Attempt.read(first))
        last = save(tmp_path, 10)  # and then the training ends
    assert Attempt.read(first) == Attempt.read(last) == Attempt("run", 1)
    assert json.loads((last / FILE).read_text()) == {"run_id": "run", "attempt": 1}
    assert resumed(config(tmp_path)) == Attempt("run", 1)


def test_a_step_that_is_saved_over_has_the_name_of_who_saved_last(tmp_path: Path) -> None:
    Attempt("earlier", 3).write(save(tmp_path, 5))
    with kept(config(tmp_path, resume_mode="disable"), Attempt("run", 1)):
        time.sleep(0.1)
        assert resumed(config(tmp_path)) == Attempt("earlier", 3)
        os.utime(tmp_path / TRACKER, ns=(1, 1))  # a clock that is coarser than the test
        save(tmp_path, 5)
    assert resumed(config(tmp_path)) == Attempt("run", 1)


def test_a_resumed_training_takes_its_number_at_once(tmp_path: Path) -> None:
    """It may be killed before it saves: the one after it is still another attempt."""
    Attempt("run", 1).write(save(tmp_path, 5))
    for number in (2, 3):
        told: list[Any] = []
        with kept(config(tmp_path), Attempt("run", number), told.append):
            eventually(lambda number=number: resumed(config(tmp_path)) == Attempt("run", number))
        assert told == [{MODE: "resume", SOURCE: "run", SOURCE_ATTEMPT: 1, SOURCE_STEP: 5}]


def test_a_run_of_another_name_leaves_the_checkpoint_that_it_began_from(tmp_path: Path) -> None:
    Attempt("run", 1).write(save(tmp_path, 5))
    told: list[Any] = []
    with kept(config(tmp_path), Attempt("mine", 1), told.append):
        time.sleep(0.1)
    assert resumed(config(tmp_path)) == Attempt("run", 1)
    assert told == [{MODE: "branch", SOURCE: "run", SOURCE_ATTEMPT: 1, SOURCE_STEP: 5}]


def test_of_a_checkpoint_that_names_no_run_the_step_alone_is_known(tmp_path: Path) -> None:
    told: list[Any] = []
    with kept(config(tmp_path), Attempt("mine", 1), told.append):  # it begins anew
        pass
    assert told == []
    save(tmp_path, 5)
    with kept(config(tmp_path), Attempt("mine", 1), told.append):
        pass
    assert told == [{SOURCE_STEP: 5}]


def test_where_verl_resumes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = save(tmp_path / "own", 7)
    other = save(tmp_path / "other", 3)
    own = tmp_path / "own"
    assert resumed_folder(config(own)) == newest
    assert resumed_folder(config(own, resume_mode="disable")) is None
    assert resumed_folder(config(own, resume_mode="resume_path", resume_from_path=str(other))) == other
    assert (
        resumed_folder(config(own, resume_from_path=str(other))) == newest
    )  # the RL trainers look at it in no other mode
    assert resumed_folder(config(own, base={}, resume_from_path=str(other))) == other  # the supervised ones do
    monkeypatch.chdir(tmp_path)
    assert resumed_folder(config("own")) == newest
    assert resumed_folder(config("own", resume_mode="resume_path", resume_from_path="other/global_step_3")) == other
    assert resumed_folder({**RL, "trainer": {}}) is None
    assert resumed_folder(config(tmp_path / "empty")) is None


def test_verl_finds_the_same_latest_checkpoint(tmp_path: Path) -> None:
    manager = pytest.importorskip("verl.utils.checkpoint.checkpoint_manager", reason="verl is not installed")
    assert latest(tmp_path) is manager.find_latest_ckpt_path(str(tmp_path)) is None
    (tmp_path / TRACKER).write_text("9")
    assert latest(tmp_path) is manager.find_latest_ckpt_path(str(tmp_path)) is None
    save(tmp_path, 9)
    assert str(latest(tmp_path)) == manager.find_latest_ckpt_path(str(tmp_path))


@pytest.mark.parametrize("noted", ["", "abc", "7\n7", "9" * 5000, "\x00", "-1"])
def test_a_note_that_names_no_checkpoint_is_none(noted: str, tmp_path: Path) -> None:
    (tmp_path / TRACKER).write_text(noted)
    with kept(config(tmp_path), Attempt("run", 1)):
        time.sleep(0.05)
    assert resumed(config(tmp_path)) is None


def test_a_pipe_is_no_note_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / TRACKER)
    assert latest(tmp_path) is None


@pytest.mark.parametrize("place", ["a\0b", "a\udcff", "x" * 5000, "", 3])
def test_a_place_that_cannot_be_has_no_checkpoints(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resumed(config(place)) is None
    with kept(config(place), Attempt("run", 1)):
        pass


def test_a_folder_that_refuses_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), kept(config(tmp_path), Attempt("run", 1)):
        for step in (1, 2):
            (tmp_path / f"global_step_{step}" / FILE).mkdir(parents=True)  # where the file should be
            (tmp_path / FILE).touch()
            save(tmp_path, step)
            time.sleep(0.1)
    (record,) = caplog.records
    assert f"{names.ATTR_RUN_ID.name}=run" in record.getMessage()
    assert str(tmp_path / "global_step_1") in record.getMessage()


@pytest.mark.parametrize(
    "trainer",
    [{"default_hdfs_dir": "hdfs://user:secret@host/ckpt"}, {"default_local_dir": "s3://bucket/token=secret"}],
)
def test_what_lies_far_away_gets_none_and_that_is_said_once(
    trainer: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), kept(config(tmp_path, **trainer), Attempt("run", 1)):
        save(tmp_path, 1)
        time.sleep(0.1)
    (record,) = caplog.records
    assert f"{names.ATTR_RUN_ID.name}=run" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_a_run_that_never_saves_leaves_nothing(tmp_path: Path) -> None:
    with kept(config(tmp_path / "nowhere"), Attempt("run", 1)):
        time.sleep(0.05)
    assert list(tmp_path.iterdir()) == []
