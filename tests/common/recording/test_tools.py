"""The figures of tools against a count of single calls, and however the rollouts are put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.tools import set_tools
from akka_otel_callbacks.common.vocabulary.step import RLStep

ROLLOUTS = st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=20)
"""Of each rollout its calls, and whether each failed."""
PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=20)
"""Of each rollout its calls, and how many failed at most."""


@given(ROLLOUTS)
def test_calls_and_failures_are_those_of_the_single_calls(rollouts: list[list[bool]]) -> None:
    step = RLStep()
    set_tools(step, [len(calls) for calls in rollouts], [sum(calls) for calls in rollouts])
    every = [failed for calls in rollouts for failed in calls]
    assert step.tool_calls == pytest.approx(len(every) / len(rollouts))
    assert step.tool_failure_ratio == (pytest.approx(every.count(True) / len(every)) if every else None)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=20).filter(lambda r: len(r) % 2 == 0)
)
def test_means_of_batches_of_as_many_rollouts_give_the_same(rollouts: list[tuple[int, int]]) -> None:
    single, batched, half = RLStep(), RLStep(), len(rollouts) // 2
    set_tools(single, [calls for calls, _ in rollouts], [min(calls, failed) for calls, failed in rollouts])
    batches = rollouts[:half], rollouts[half:]
    set_tools(
        batched,
        [sum(calls for calls, _ in batch) / half for batch in batches],
        [sum(min(calls, failed) for calls, failed in batch) / half for batch in batches],
    )
    assert batched.tool_calls == pytest.approx(single.tool_calls)
    assert (batched.tool_failure_ratio is None) == (single.tool_failure_ratio is None)
    assert batched.tool_failure_ratio is None or batched.tool_failure_ratio == pytest.approx(single.tool_failure_ratio)


def test_without_tools_there_is_nothing() -> None:
    step = RLStep()
    set_tools(step, [], [])
    assert (step.tool_calls, step.tool_failure_ratio) == (None, None)


def test_failures_that_are_not_known_are_no_zero() -> None:
    step = RLStep()
    set_tools(step, [2.0, 0.0], None)
    assert (step.tool_calls, step.tool_failure_ratio) == (1.0, None)
