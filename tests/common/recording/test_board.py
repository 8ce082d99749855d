"""The board: exact absence for a step's own figures, and a life of their own for the sticky ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.board import Board
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES

PHASE = names.ATTR_SFT_STEP_PHASE.name
PLAIN, STICKY, MIXED = names.SFT_STEP_LOSS, names.SFT_EVAL_LOSS, names.SFT_STEP_TIMING


def phase(value: str) -> dict[str, str]:
    return {PHASE: value}


def test_an_empty_board_shows_nothing() -> None:
    assert Board().points(PLAIN) == ()


def test_a_figure_that_the_next_step_does_not_have_ends() -> None:
    first = Board().replaced_by({PLAIN: [(1.0, NO_ATTRIBUTES)]})
    second = first.replaced_by({names.SFT_STEP_TOKENS: [(5.0, NO_ATTRIBUTES)]})
    assert second.points(PLAIN) == ()
    assert second.points(names.SFT_STEP_TOKENS) == ((5.0, NO_ATTRIBUTES),)
    assert first.points(PLAIN) == ((1.0, NO_ATTRIBUTES),), "a board never changes"


def test_a_sticky_figure_lives_until_it_is_replaced() -> None:
    board = Board().amended_with({STICKY: [(2.0, NO_ATTRIBUTES)]}).replaced_by({}).replaced_by({})
    assert board.points(STICKY) == ((2.0, NO_ATTRIBUTES),)
    assert board.replaced_by({STICKY: [(1.5, NO_ATTRIBUTES)]}).points(STICKY) == ((1.5, NO_ATTRIBUTES),)


def test_of_one_metric_only_the_sticky_values_live_on() -> None:
    board = Board().replaced_by({MIXED: [(1.0, phase("step")), (3.0, phase("eval")), (4.0, phase("save_checkpoint"))]})
    assert board.replaced_by({MIXED: [(2.0, phase("step"))]}).points(MIXED) == (
        (3.0, phase("eval")),
        (4.0, phase("save_checkpoint")),
        (2.0, phase("step")),
    )


def test_an_amendment_replaces_its_own_series_and_keeps_the_others() -> None:
    board = Board().replaced_by({MIXED: [(1.0, phase("step")), (2.0, phase("input"))], PLAIN: [(0.5, NO_ATTRIBUTES)]})
    amended = board.amended_with({MIXED: [(9.0, phase("step"))]})
    assert amended.points(MIXED) == ((2.0, phase("input")), (9.0, phase("step")))
    assert amended.points(PLAIN) == ((0.5, NO_ATTRIBUTES),)


SERIES = st.sampled_from([(PLAIN, None), (STICKY, None), (MIXED, "step"), (MIXED, "input"), (MIXED, "eval")])
REPORT = st.dictionaries(SERIES, st.floats(allow_nan=False), max_size=5)


@given(st.lists(st.tuples(st.booleans(), REPORT), max_size=8))
def test_any_history_shows_what_a_plain_reading_of_the_rule_says(history: list) -> None:
    """The rule read plainly: a step forgets all but the sticky series, a report sets its own series."""
    board, expected = Board(), {}
    for is_step, report in history:
        if is_step:
            expected = {
                series: value for series, value in expected.items() if series in {(STICKY, None), (MIXED, "eval")}
            }
        expected.update(report)
        figures: dict = {}
        for (metric, value_of), value in report.items():
            figures.setdefault(metric, []).append((value, phase(value_of) if value_of else NO_ATTRIBUTES))
        board = board.replaced_by(figures) if is_step else board.amended_with(figures)
    shown = {
        (metric, attributes.get(PHASE)): value
        for metric in (PLAIN, STICKY, MIXED)
        for value, attributes in board.points(metric)
    }
    assert shown == expected
    assert sum(len(board.points(metric)) for metric in (PLAIN, STICKY, MIXED)) == len(expected), "no series twice"
