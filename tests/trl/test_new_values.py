"""The new ends of TRL's buffers, whatever a training appends, clears and logs in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.trl.new_values import NewValueReader

KEYS = ["entropy", "kl", "reward"]
events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(KEYS)),
        st.tuples(st.just("log"), st.none()),
        st.tuples(st.just("step"), st.none()),
    ),
    max_size=40,
)


@given(leftovers=st.dictionaries(st.sampled_from(KEYS), st.lists(st.integers(), min_size=1)), events=events)
def test_a_step_has_exactly_what_was_appended_in_it(leftovers: dict[str, list[int]], events: list[Any]) -> None:
    """TRL logs behind a step only, so that what it clears was read."""
    buffers: dict[str, list[int]] = dict(leftovers)
    reader = NewValueReader(buffers)
    appended: dict[str, list[int]] = {}
    value = 0
    for event, key in events:
        if event == "append":
            value += 1
            buffers.setdefault(key, []).append(value)
            appended.setdefault(key, []).append(value)
        else:
            assert reader.new(buffers) == appended
            appended = {}
            if event == "log":
                buffers.clear()
    assert reader.new(buffers) == appended


def test_a_list_that_is_replaced_is_new() -> None:
    """As TRL keeps `num_tokens`."""
    buffers = {"num_tokens": [10]}
    reader = NewValueReader(buffers)
    assert reader.new(buffers) == {}
    buffers["num_tokens"] = [25]
    assert reader.new(buffers) == {"num_tokens": [25]}


def test_a_list_that_is_emptied_in_place_is_new() -> None:
    buffers = {"entropy": [1, 2, 3]}
    reader = NewValueReader(buffers)
    buffers["entropy"][:] = [4]
    assert reader.new(buffers) == {"entropy": [4]}


def test_what_is_no_list_is_left_out() -> None:
    buffers: dict[str, Any] = {"mean": 3.0, "pairs": ((1, 2),), "entropy": [1.0]}
    assert NewValueReader({}).new(buffers) == {"entropy": [1.0]}
