"""The new ends of TRL's buffers, whatever a training appends, clears and logs in between, whenever they are read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.trl.new_values import Mark, Marker, new_values

KEYS = ["entropy", "kl", "reward"]
READ = {"entropy", "reward", "another"}
events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(KEYS)),
        st.tuples(st.sampled_from(["log", "mark", "step"]), st.none()),
    ),
    max_size=40,
)


@given(leftovers=st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(), min_size=1)), events=events)
def test_a_step_has_exactly_what_was_appended_in_it(leftovers: dict[str, list[int]], events: list[Any]) -> None:
    """TRL clears the buffers at a log, before which they were marked. The steps are read when all of them are over."""
    buffers: dict[str, list[int]] = dict(leftovers)
    marker = Marker(READ.__contains__)
    marks = [marker.mark(buffers)]
    steps: list[tuple[list[Mark], dict[str, list[int]]]] = []
    appended: dict[str, list[int]] = {}
    for value, (event, key) in enumerate([*events, ("step", None)]):
        if event == "append":
            buffers.setdefault(key, []).append(value)
            if key in READ:
                appended.setdefault(key, []).append(value)
            continue
        marks.append(marker.mark(buffers))
        if event == "log":
            buffers.clear()
        if event == "step":
            steps.append((marks, appended))
            marks, appended = marks[-1:], {}
    for found, expected in steps:
        assert new_values(found) == expected


def mark(buffers: dict[str, Any]) -> Mark:
    return Marker(lambda key: True).mark(buffers)


def test_a_list_that_is_replaced_is_new() -> None:
    """As TRL keeps `num_tokens`."""
    buffers = {"num_tokens": [10]}
    marks = [mark(buffers), mark(buffers)]
    assert new_values(marks) == {}
    buffers["num_tokens"] = [25]
    assert new_values([*marks, mark(buffers)]) == {"num_tokens": [25]}


def test_a_list_that_is_emptied_in_place_is_new() -> None:
    buffers = {"entropy": [1, 2, 3]}
    marks = [mark(buffers)]
    buffers["entropy"][:] = [4]
    assert new_values([*marks, mark(buffers)]) == {"entropy": [4]}


def test_a_list_that_is_emptied_before_it_is_read_says_nothing() -> None:
    buffers = {"entropy": [1], "kl": [1]}
    marks = [mark({}), mark(buffers)]
    buffers["entropy"].clear()
    assert new_values(marks) == {"kl": [1]}


def test_only_the_lists_that_are_read_wait_with_a_step() -> None:
    marker, buffers = Marker(READ.__contains__), {"reward": [1], "kl": [2], "entropy": [3]}
    assert marker.mark(buffers) == (["reward", "entropy"], [[1], [3]], [1, 1])
    buffers["another"] = [5, 6]
    assert marker.mark(buffers) == (["reward", "entropy", "another"], [[1], [3], [5, 6]], [1, 1, 2])


def test_what_is_no_list_is_left_out() -> None:
    buffers: dict[str, Any] = {"mean": 3.0, "pairs": ((1, 2),), "entropy": [1.0]}
    assert new_values([mark({}), mark(buffers)]) == {"entropy": [1.0]}
