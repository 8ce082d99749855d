"""The rows of a log as runs."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from akka_otel_callbacks.replay.history import runs
from akka_otel_callbacks.replay.log import Row

EVALUATION = "eval"


def found(*parts: str) -> list[list[str]]:
    """Each word of a part is a row: the number of a step with any letter behind it, and with `e` an evaluation's."""
    rows = [
        Row(int(word.rstrip("abcdefv")), {EVALUATION: "v" in word, "word": word}, part=part)
        for part, words in enumerate(parts)
        for word in words.split()
    ]
    return [[row.values["word"] for row in run] for run in runs(rows, lambda row: not row.values[EVALUATION])]


def of(*runs: str) -> list[list[str]]:
    return [run.split() for run in runs]


def test_one_run() -> None:
    assert found("0v 1 2 2v 3") == of("0v 1 2 2v 3")
    assert found("") == []
    assert found("0v") == of("0v")


def test_a_run_that_went_on_from_a_checkpoint_counts_each_step_once() -> None:
    assert found("1a 2a 3a 4a 2b 3b 4b 5b") == of("1a 2b 3b 4b 5b")
    assert found("10a 20a 30a 40a 20b 30b") == of("10a 20b 30b")
    assert found("1a 2a 3a", "3b 4b") == of("1a 2a 3b 4b")
    assert found("10a 20a 30a", "25b 35b") == of("10a 20a 25b 35b")


def test_its_evaluations_go_with_it() -> None:
    assert found("1a 2a 2va 3a 3va 1vb 2b 2vb 3b") == of("1a 1vb 2b 2vb 3b")
    assert found("1a 2a 3a 3va 2b 3b") == of("1a 2b 3b")
    assert found("1 2 3 3v") == of("1 2 3 3v")


def test_a_second_run_from_the_start_is_another_one() -> None:
    assert found("0va 1a 2a 3a 0vb 1b 2b") == of("0va 1a 2a 3a", "0vb 1b 2b")
    assert found("1a 2a 3a 3va 1b") == of("1a 2a 3a 3va", "1b")
    assert found("1a 2a", "1b 2b 3b", "1c") == of("1a 2a", "1b 2b 3b", "1c")


def test_a_step_that_comes_late_or_twice_goes_to_its_place() -> None:
    assert found("1 2 4 3 5") == of("1 2 3 4 5")
    assert found("1 2 2b 3") == of("1 2 2b 3")
    assert found("1 2 3 2b 4") == of("1 2 2b 3 4")
    assert found("1 2 3 4 2b") == of("1 2 2b 3 4")


steps = st.lists(st.integers(0, 9), max_size=20)


@given(steps, st.lists(st.booleans(), min_size=20, max_size=20))
def test_no_row_is_made_up_and_each_run_is_in_order(numbers: Sequence[int], complete: Sequence[bool]) -> None:
    rows = [Row(number, {"completes": completes}) for number, completes in zip(numbers, complete, strict=False)]
    split = runs(rows, lambda row: row.values["completes"])
    kept = [id(row) for run in split for row in run]
    assert len({*kept}) == len(kept)
    assert {*kept} <= {id(row) for row in rows}
    assert all([row.number for row in run] == sorted(row.number for row in run) for run in split)
    assert bool(split) == bool(rows)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 30))
def test_a_restored_run_has_each_step_once(first: int, restored: int, more: int) -> None:
    numbers = [*range(1, first + 1), *range(restored, first + 1 + more)]
    assume(1 < restored < first and more)
    (run,) = runs([Row(number, {"at": at}) for at, number in enumerate(numbers)], lambda row: True)
    assert [row.number for row in run] == [*range(1, first + 1 + more)]
    assert [row.values["at"] for row in run][restored - 1 :] == [*range(first, len(numbers))]
