"""Whether an answer is what it has to be."""

from __future__ import annotations

import pytest

from tests.servers.expected import Check
from tests.servers.world import Answer


def check(answer: Answer, expected: Check | None, why_no_result: str | None) -> None:
    """Fails unless the answer is what the runs had.

    Args:
        answer: to a query.
        expected: what is to be said of it; None for a series, or one aggregation of a series, which is then computed
            from the runs' files.
        why_no_result: why there is none; None where there has to be one.
    """
    if why_no_result is not None:
        assert not answer.minutes, f"there is a result, although {why_no_result!r}: take it out of the table"
        return
    assert answer.minutes, f"no result: {answer.expression}"
    if expected is not None:
        expected(answer)
        return
    values = answer.truth.of(answer.expression)
    assert values is not None, f"more than one series, so a table has to say what it gives: {answer.expression}"
    assert answer.values == pytest.approx(values, rel=1e-9)
