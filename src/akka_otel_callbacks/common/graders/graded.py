"""Puts a rule on the clock: `graded(rule, term="rule:score.py")`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, TypeVar, overload

from akka_otel_callbacks.common.graders.function import is_async, marked
from akka_otel_callbacks.common.graders.gather import gathered
from akka_otel_callbacks.common.graders.rows import BATCH, VERL_COMPLETION, Parameters, Row, is_batch, named, rows_of
from akka_otel_callbacks.common.graders.scoring import Scoring

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)


@overload
def graded(function: R, *, term: str, zero: Any = 0.0) -> R: ...


@overload
def graded(function: None = None, *, term: str, zero: Any = 0.0) -> Callable[[R], R]: ...


def graded(function: Rule | None = None, *, term: str, zero: Any = 0.0) -> Any:
    """Gives a rule a name of its own, and times how long it takes for each row. It is called as before, by TRL, by
    verl, or by a reward function that combines several rules.

    A rule scores a batch, as TRL's reward functions do, or a single row: then it has a parameter `prompt`, `completion`
    or `solution_str`, and gets TRL's batches row by row. It gets the columns of a row that it has parameters for. A
    rule that raises `GraderFailure(cause)` has no score for that row.

    Args:
        function: the rule, a plain or an `async` function. Without it, `graded` is a decorator.
        term: the name of its term, such as `rule:score.py`. TRL shows its rewards under that name, too.
        zero: the score of a row that could not be scored. On verl a rule that returns a dict needs a dict with the same
            keys here, because verl expects them of every row.

    Raises:
        ValueError: `term` is no name.
    """
    if function is None:
        return lambda function: graded(function, term=term, zero=zero)
    parameters = Parameters(function)
    make = _of_async if is_async(function) else _of_plain
    wrapper = make(function, parameters, term, zero)
    return marked(functools.wraps(function)(wrapper), term)


def _of_plain(rule: Rule, parameters: Parameters, term: str, zero: Any) -> Rule:
    def one(call: Callable[[], Any]) -> Any:
        with Scoring(term) as scoring:
            score = call()
        return copy(zero) if scoring.failed else score

    def scored(*args: Any, **kwargs: Any) -> Any:
        given = parameters.by_name(args, kwargs)
        if not is_batch(given):
            return one(_single(rule, parameters, args, kwargs))
        if parameters.are_of_a_row:
            return [one(functools.partial(rule, *args, **parameters.among(row))) for row in rows_of(kwargs)]
        with Scoring(term, len(given[BATCH])) as scoring:
            scores = rule(*args, **kwargs)
        return _zeros(zero, given) if scoring.failed else scores

    return scored


def _of_async(rule: Rule, parameters: Parameters, term: str, zero: Any) -> Rule:
    async def one(call: Callable[[], Awaitable[Any]]) -> Any:
        with Scoring(term) as scoring:
            score = await call()
        return copy(zero) if scoring.failed else score

    async def scored(*args: Any, **kwargs: Any) -> Any:
        given = parameters.by_name(args, kwargs)
        if not is_batch(given):
            return await one(_single(rule, parameters, args, kwargs))
        if parameters.are_of_a_row:
            calls = [functools.partial(rule, *args, **parameters.among(row)) for row in rows_of(kwargs)]
            return await gathered(map(one, calls))
        with Scoring(term, len(given[BATCH])) as scoring:
            scores = await rule(*args, **kwargs)
        return _zeros(zero, given) if scoring.failed else scores

    return scored


def _single(rule: Rule, parameters: Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rule:
    """A call of the rule for one row. verl hands over more than a rule may take, so the rest is left out. Any other
    call is passed on as it is."""
    row = parameters.among(named(kwargs)) if VERL_COMPLETION in kwargs else kwargs
    return functools.partial(rule, *args, **row)


def _zeros(zero: Any, batch: Row) -> Sequence[Any]:
    return [copy(zero) for _ in batch[BATCH]]
