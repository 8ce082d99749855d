"""Nothing that fails in a guarded function reaches the training, and the log is not flooded."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from akka_otel_callbacks.common.guard import guarded


class Engine:
    @guarded
    def event(self, error: BaseException | None = None, *, extra: int = 0) -> int:
        """What the engine calls."""
        if error is not None:
            raise error
        return 41 + extra


def test_arguments_and_results_pass() -> None:
    assert Engine().event(extra=1) == 42
    assert (Engine.event.__name__, Engine.event.__doc__) == ("event", "What the engine calls.")


def test_a_failure_is_none_and_logged_once_a_cause(failures: Counter, log: pytest.LogCaptureFixture) -> None:
    for error in (ValueError("first"), ValueError("second"), KeyError("third"), ValueError("fourth")):
        assert Engine().event(error) is None
    assert failures == {("Engine.event", "ValueError"): 3, ("Engine.event", "KeyError"): 1}
    assert [record.levelno for record in log.records] == [logging.WARNING] * 2
    assert "Engine.event" in log.text
    assert "first" in log.text
    assert "second" not in log.text
    assert log.records[0].exc_info[1].args == ("first",), "the first of a cause has its traceback"


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_the_user_s_own_ends_pass(end: Any, failures: Counter) -> None:
    with pytest.raises(end):
        Engine().event(end())
    assert not failures


def test_the_training_goes_on_when_logging_itself_fails(failures: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    monkeypatch.setattr(logging, "raiseExceptions", False)
    assert Engine().event(Unprintable()) is None
    assert failures == {("Engine.event", "Unprintable"): 1}
