"""Rules on the clock: called as both engines call them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.graders.call import Call, decoded, encoded
from akka_otel_callbacks.common.graders.ledger import Ledger
from akka_otel_callbacks.common.graders.rows import rows_of, text_of
from akka_otel_callbacks.graders import GraderFailure, graded

TERM = "rule:score.py"
BATCH = {"prompts": ["p", "q", "r"], "completions": ["a", "bb", "ccc"], "answer": [1, 2, 3], "trainer_state": object()}
VERL = {"data_source": "d", "solution_str": "bb", "ground_truth": "2", "extra_info": {}}


def row(completion: str, answer: int) -> float:
    if answer == 2:
        raise GraderFailure("ungradable")
    time.sleep(0.001 * answer)
    return float(len(completion))


async def row_async(completion: str, answer: int) -> float:
    if answer == 2:
        raise GraderFailure("ungradable")
    await asyncio.sleep(0.02 * answer)
    return float(len(completion))


def batch(completions: list[str], **_: Any) -> list[float]:
    time.sleep(0.006)
    return [*map(float, map(len, completions))]


async def batch_async(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    await asyncio.sleep(0.006)
    return [*map(float, map(len, completions))]


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Call]]:
    with Ledger() as ledger:
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
    return result, ledger.calls


async def _awaited(result: Any) -> Any:
    return await result


@pytest.mark.parametrize("rule", [row, row_async])
def test_a_rule_of_single_rows_gets_a_batch_row_by_row(rule: Any) -> None:
    scores, calls = called(graded(rule, term=TERM), **BATCH)
    assert scores == [1.0, 0.0, 3.0]
    assert {(call.term, call.rows, call.cause) for call in calls} == {(TERM, 1, None), (TERM, 1, "ungradable")}
    assert sorted(call.cause or "" for call in calls) == ["", "", "ungradable"]
    assert max(call.seconds for call in calls) >= 0.003, "each from its own start to its own end"
    assert min(call.seconds for call in calls) < 0.003


@pytest.mark.parametrize("rule", [batch, batch_async])
def test_a_batchs_time_is_divided_by_its_rows(rule: Any) -> None:
    begin = time.perf_counter()
    scores, calls = called(graded(rule, term=TERM), **BATCH)
    took = time.perf_counter() - begin
    assert scores == [1.0, 2.0, 3.0]
    (call,) = calls
    assert (call.rows, call.cause) == (3, None)
    assert 0.002 <= call.seconds <= took / 3


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_batch_that_cannot_be_scored_is_zero_in_every_row(kind: str) -> None:
    def rule(completions: list[str], **_: Any) -> list[float]:
        raise GraderFailure("unavailable")

    async def rule_async(completions: list[str], **_: Any) -> list[float]:
        raise GraderFailure("unavailable")

    scores, calls = called(graded(rule if kind == "plain" else rule_async, term=TERM), **BATCH)
    assert scores == [0.0, 0.0, 0.0]
    assert [(call.rows, call.cause) for call in calls] == [(3, "unavailable")]


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_verls_row_is_given_as_far_as_the_rule_takes_it(kind: str) -> None:
    @graded(term=TERM)
    def rule(completion: str, ground_truth: str) -> float:
        return len(completion) == int(ground_truth)

    @graded(term=TERM)
    async def rule_async(solution_str: str, ground_truth: str, **others: Any) -> float:
        assert others.keys() >= {"data_source", "extra_info"}
        return len(solution_str) == int(ground_truth)

    score, calls = called(rule if kind == "plain" else rule_async, **VERL)
    assert (score, len(calls)) == (True, 1)


def test_anybody_elses_call_is_passed_as_it_is() -> None:
    rule = graded(row, term=TERM)
    assert called(rule, "abc", answer=1)[0] == 3.0
    with pytest.raises(TypeError, match="anwser"):
        rule("abc", anwser=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("rule", [row, row_async, batch, batch_async])
def test_the_function_stays_of_its_kind_and_is_named_by_its_term(rule: Any) -> None:
    wrapped = graded(rule, term=TERM)
    assert inspect.iscoroutinefunction(wrapped) == inspect.iscoroutinefunction(rule)
    assert wrapped.__name__ == TERM


@graded(term=TERM)
def decorated(completions: list[str], **_: Any) -> list[float]:
    return [0.0 for _ in completions]


def test_a_decorated_function_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated


@pytest.mark.parametrize("term", [None, 3, ""])
def test_a_term_that_is_no_name_is_refused(term: Any) -> None:
    with pytest.raises(ValueError, match=f"term={term!r} must be a name"):
        graded(batch, term=term)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_by_position_is_a_batch(is_async: bool) -> None:
    def plain(completions: list[str], answer: list[int]) -> list[float]:
        if answer[0] == 2:
            raise GraderFailure("ungradable")
        return [1.0 for _ in completions]

    async def asynchronous(completions: list[str], answer: list[int]) -> list[float]:
        return plain(completions, answer)

    rule = graded(asynchronous if is_async else plain, term=TERM)
    scores, (call,) = called(rule, ["a", "b"], [1, 1])
    assert (scores, call.rows, call.cause) == ([1.0, 1.0], 2, None)
    scores, (call,) = called(rule, ["a", "b"], answer=[2, 1])
    assert (scores, call.rows, call.cause) == ([0.0, 0.0], 2, "ungradable")


def test_an_object_with_a_call_is_a_rule() -> None:
    class Rule:
        def __init__(self, most: int) -> None:
            self.most = most

        async def __call__(self, completion: str) -> float:
            return min(len(completion), self.most)

    wrapped = graded(Rule(2), term=TERM)
    assert inspect.iscoroutinefunction(wrapped)
    assert called(wrapped, **BATCH)[0] == [1, 2, 2]
    assert called(graded(functools.partial(row, answer=1), term=TERM), completion="ab")[0] == 2.0


@pytest.mark.parametrize("rule", [row, row_async])
def test_any_other_exception_goes_through_and_is_not_counted(rule: Any) -> None:
    with Ledger() as ledger, pytest.raises(TypeError):
        called(graded(rule, term=TERM), completion=None, answer=1)
    assert ledger.calls == []


def test_none_is_no_failure() -> None:
    assert called(graded(lambda completion: None, term=TERM), **BATCH)[0] == [None] * 3


def test_a_rule_that_returns_a_dict_says_what_zero_is() -> None:
    zero = {"score": 0.0, "acc": 0}

    @graded(term=TERM, zero=zero)
    def rule(solution_str: str, **_: Any) -> dict[str, float]:
        raise GraderFailure("timeout")

    score, calls = called(rule, **VERL)
    assert score == zero
    assert score is not zero, "verl writes into what it is given"
    assert calls[0].cause == "timeout"


def test_a_cause_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'broken' is no cause.*timeout, unavailable, unreadable, ungradable"):
        GraderFailure("broken")


def test_an_empty_batch_is_no_call() -> None:
    for rule in (row, batch):
        assert called(graded(rule, term=TERM), prompts=[], completions=[], answer=[]) == ([], [])


def test_a_failing_row_ends_the_others() -> None:
    ended: list[int] = []

    @graded(term=TERM)
    async def rule(completion: str, answer: int) -> float:
        if answer == 2:
            raise RuntimeError("no")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append(answer)
            raise
        return 0.0

    with pytest.raises(RuntimeError):
        called(rule, **BATCH)
    assert sorted(ended) == [1, 3]


columns = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name not in ("prompts", "completions")),
    st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=4)),
    max_size=5,
)


@given(st.lists(st.text(max_size=5), max_size=4), columns)
def test_rows_are_the_columns_turned(completions: list[str], others: dict[str, Any]) -> None:
    rows = rows_of({"completions": completions, **others})
    assert [found["completion"] for found in rows] == completions
    for at, found in enumerate(rows):
        for name, value in others.items():
            is_column = isinstance(value, list) and len(value) == len(completions)
            assert found.get({"environments": "environment"}.get(name, name)) == (value[at] if is_column else value)


anything = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "text", "type"]), inner, max_size=3)
    ),
)


@given(anything)
def test_whatever_a_conversation_holds_is_text(value: Any) -> None:
    assert isinstance(text_of(value), str)


calls_ = st.builds(
    Call,
    st.text(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(1, 9),
    st.none() | st.just("timeout"),
    st.none() | st.integers(0, 2**60),
    st.none() | st.integers(0, 2**60),
)


@given(st.lists(calls_))
def test_calls_arrive_as_they_were_sent(calls: list[Call]) -> None:
    sent = encoded(calls)
    assert sent.isascii()
    assert decoded(sent) == calls
