"""Which attempt a training is: what a person says, what a checkpoint says, and what this process began before."""

from __future__ import annotations

import itertools
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.run import attempt as attempts
from akka_otel_callbacks.common.run.attempt import FILE, Attempt, later
from akka_otel_callbacks.common.run.attributes import is_run_id
from akka_otel_callbacks.common.vocabulary import names

ID, NUMBER = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name
_ids = itertools.count()
begin = partial(attempts.begin, is_published=lambda _: False)


@pytest.fixture
def run() -> str:
    """A run that this process has not seen."""
    return f"run-{next(_ids)}"


# -- the next attempt


def test_each_training_of_a_run_in_a_process_is_an_attempt_of_its_own(run: str) -> None:
    assert [begin({}, generated_id=run) for _ in range(3)] == [Attempt(run, number) for number in (1, 2, 3)]
    assert begin({}, generated_id=f"{run}-other").number == 1


def test_a_resumed_training_is_the_next_attempt_of_the_checkpoint_s_run(run: str) -> None:
    saved = Attempt(run, 4)
    assert begin({}, generated_id="new", resumed=saved) == Attempt(run, 5)
    assert begin({}, generated_id="new", resumed=saved) == Attempt(run, 6), "a second resume from the same checkpoint"


@pytest.mark.parametrize("given", ["code", "environment"])
def test_what_a_person_says_wins(given: str, run: str) -> None:
    def begun(resumed: Attempt | None = None, before: int = 0, **said: Any) -> Attempt:
        by_name = {{"run_id": ID, "number": NUMBER}[field]: value for field, value in said.items()}
        pairs = ",".join(f"{name}={value}" for name, value in by_name.items())
        environ, arguments = ({}, by_name) if given == "code" else ({"OTEL_RESOURCE_ATTRIBUTES": pairs}, None)
        return begin(environ, arguments=arguments, generated_id="new", resumed=resumed, before=before)

    saved = Attempt(run, 4)
    assert begun(saved, number=2) == Attempt(run, 2)
    assert begun(saved, run_id=f"{run}-mine") == Attempt(f"{run}-mine", 1), "another run than the checkpoint's"
    assert begun(saved, run_id=run) == Attempt(run, 5), "the same run"
    assert begun(saved, run_id=run, number=9) == Attempt(run, 9)
    assert begun(run_id=run, number=9) == Attempt(run, 9), "as often as they say it"
    assert begun(run_id=run, number=9, before=2) == Attempt(run, 11)
    assert begun(run_id=run) == Attempt(run, 12)


def test_a_number_that_is_none_is_no_number(run: str) -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": f"{NUMBER}=many,{ID}="}
    assert begin(environ, arguments={NUMBER: None}, generated_id=run) == Attempt(run, 1)


def test_what_a_person_says_in_code_and_nobody_can_use_costs_a_line(run: str, log: pytest.LogCaptureFixture) -> None:
    """The attempt that is chosen takes its place, so that nothing else would tell."""
    assert begin({}, arguments={ID: "\t", NUMBER: 0}, generated_id=run) == Attempt(run, 1)
    assert [record.getMessage().partition(" is not ")[0] for record in log.records] == [
        f"the resource attribute {ID}='\\t'",
        f"the resource attribute {NUMBER}=0",
    ]


@pytest.mark.parametrize(("restarts", "saved", "number"), [(0, 3, 4), (2, 1, 3), (2, None, 3)])
def test_a_restart_by_torchrun_and_a_checkpoint(restarts: int, saved: int | None, number: int, run: str) -> None:
    resumed = None if saved is None else Attempt(run, saved)
    environ = {"TORCHELASTIC_RESTART_COUNT": str(restarts)}
    assert begin(environ, generated_id=run, resumed=resumed) == Attempt(run, number)


@pytest.mark.parametrize("published", [{1}, {1, 2}, {1, 2, 3}, {1, 3}, {2}])
def test_the_next_free_number_is_taken(published: set[int], run: str, log: pytest.LogCaptureFixture) -> None:
    taken = {Attempt(run, number) for number in published}
    first = next(number for number in itertools.count(1) if number not in published)
    assert begin({}, generated_id=run, is_published=taken.__contains__) == Attempt(run, first)
    assert len(log.records) == (first > 1)
    second = next(number for number in itertools.count(first + 1) if number not in published)
    assert begin({}, generated_id=run, is_published=taken.__contains__) == Attempt(run, second)
    assert begin({}, arguments={NUMBER: 1}, generated_id=run, is_published=taken.__contains__) == Attempt(run, 1)


def test_of_two_records_the_later_counts() -> None:
    first = Attempt("a", 2)
    assert later(first, Attempt("a", 3)) == Attempt("a", 3)
    assert later(first, Attempt("a", 1)) == first
    assert later(first, Attempt("b", 9)) == first, "of another run"
    assert later(None, first) == later(first, None) == first
    assert later(None, None) is None


# -- the way with a checkpoint


@given(st.text(min_size=1, max_size=256).filter(is_run_id), st.integers(1, 1_000_000))
def test_what_was_saved_comes_back(run_id: str, number: int) -> None:
    attempt = Attempt(run_id, number)
    assert Attempt.from_json(attempt.to_json()) == attempt


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["run_id", "attempt", "x"]), inner),
)


@given(GARBAGE)
def test_garbage_is_nothing(state: Any) -> None:
    found = Attempt.from_state(state)
    assert found is None or found.state() == {name: state[name] for name in ("run_id", "attempt")}
    assert Attempt.from_json(json.dumps(state)) == found


@pytest.mark.parametrize(
    "state",
    [
        {"run_id": "", "attempt": 1},
        {"run_id": " / ", "attempt": 1},
        {"run_id": "a\nb", "attempt": 1},
        {"run_id": "a" * 257, "attempt": 1},
        {"run_id": "\ud800", "attempt": 1},
        {"run_id": 7, "attempt": 1},
        {"run_id": "a", "attempt": 0},
        {"run_id": "a", "attempt": True},
        {"run_id": "a", "attempt": "1"},
        {"run_id": "a", "attempt": 1.0},
        {"run_id": "a", "attempt": 10**30},
        {"run_id": "a"},
    ],
)
def test_what_is_no_attempt(state: Any) -> None:
    assert Attempt.from_state(state) is None


def test_it_lies_beside_a_checkpoint(tmp_path: Path) -> None:
    assert Attempt.read(tmp_path) is None
    for number in (1, 2):
        Attempt("run", number).write(tmp_path)
        assert Attempt.read(tmp_path) == Attempt("run", number)
        assert Attempt.saver(tmp_path) == Attempt("run", number)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    Attempt("run", 5).write(tmp_path, saved_by=2)
    assert Attempt.read(tmp_path) == Attempt("run", 5)
    assert Attempt.saver(tmp_path) == Attempt("run", 2)
    with pytest.raises(OSError):
        Attempt("run", 1).write(tmp_path / "missing")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"run_id": "a", "attempt": 1e400}'])
def test_a_file_that_says_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert Attempt.read(tmp_path) is Attempt.saver(tmp_path) is None


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    assert Attempt.read(tmp_path) is None
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    assert Attempt.read(tmp_path) is None
