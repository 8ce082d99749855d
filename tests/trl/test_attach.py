"""Wraps of methods on one instance: calls pass unchanged, failing hooks are harmless, and nothing is left behind."""

from __future__ import annotations

import gc
import inspect
import logging
import weakref
from typing import Any

import pytest

from akka_otel_callbacks.trl.attach import Wraps, find_trainer


class Owner:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def method(self, first: int, *rest: int, key: str = "") -> tuple[Any, ...]:
        """Says what it got."""
        self.calls.append((first, rest, key))
        if first < 0:
            raise ValueError(first)
        return first, rest, key


def test_a_call_passes_unchanged() -> None:
    owner, wraps, seen = Owner(), Wraps(), []
    assert wraps.after(owner, "method", lambda result, args, seconds: seen.append((result, args, seconds)))
    assert owner.method(1, 2, key="k") == (1, (2,), "k")
    ((result, args, seconds),) = seen
    assert (result, args) == ((1, (2,), "k"), (1, 2))
    assert 0 <= seconds < 1
    assert Owner().method(3) == (3, (), "")
    assert len(seen) == 1, "another instance has nothing to do with it"


def test_an_exception_passes_and_calls_no_hook() -> None:
    owner, wraps, seen = Owner(), Wraps(), []
    wraps.after(owner, "method", lambda *args: seen.append(args))
    with pytest.raises(ValueError):
        owner.method(-1)
    assert not seen


def test_a_failing_hook_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("hook")

    owner, wraps = Owner(), Wraps()
    wraps.after(owner, "method", fails, fails)
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        assert owner.method(1) == owner.method(1) == (1, (), "")
    assert len(caplog.records) == 1


def test_the_wrap_looks_like_the_method() -> None:
    owner, wraps = Owner(), Wraps()
    signature = inspect.signature(owner.method)
    wraps.after(owner, "method", lambda *_: None)
    assert inspect.signature(owner.method) == signature
    assert (owner.method.__name__, owner.method.__doc__) == ("method", "Says what it got.")


@pytest.mark.parametrize("owner", [None, object(), Owner()])
def test_what_has_no_such_method_is_not_wrapped(owner: Any) -> None:
    assert not Wraps().after(owner, "missing", lambda *_: None)
    assert not Wraps().after(owner, "calls", lambda *_: None)


def test_undo_leaves_the_instance_as_it_was() -> None:
    owner, wraps = Owner(), Wraps()
    before = dict(vars(owner))
    wraps.after(owner, "method", lambda *_: None)
    wraps.after(owner, "method", lambda *_: None)
    wraps.around(owner, "method", lambda call, *args: call(*args))
    assert "method" in vars(owner)
    wraps.undo()
    assert vars(owner) == before
    wraps.undo()


def test_undo_brings_back_what_the_instance_had_of_its_own() -> None:
    owner, wraps = Owner(), Wraps()
    owner.method = own = lambda *args: args  # type: ignore[method-assign]
    wraps.after(owner, "method", lambda *_: None)
    assert owner.method(1, 2) == (1, 2)
    wraps.undo()
    assert owner.method is own


def test_undo_does_not_pull_out_what_somebody_put_on_top() -> None:
    owner, wraps = Owner(), Wraps()
    wraps.after(owner, "method", lambda *_: None)
    ours = owner.method
    owner.method = theirs = lambda *args: ("theirs", ours(*args))  # type: ignore[method-assign]
    wraps.undo()
    assert owner.method is theirs
    assert owner.method(1) == ("theirs", (1, (), ""))


def test_around_sees_every_end() -> None:
    seen: list[str] = []

    def wrapper(call: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        finally:
            seen.append("end")

    owner = Owner()
    Wraps().around(owner, "method", wrapper)
    assert owner.method(1, key="k") == (1, (), "k")
    with pytest.raises(ValueError):
        owner.method(-1)
    assert seen == ["end", "end"]


def test_a_wrapped_owner_dies_with_its_last_reference() -> None:
    owner, wraps = Owner(), Wraps()
    wraps.after(owner, "method", lambda *_: None)
    wraps.around(owner, "method", lambda call, *args: call(*args))
    left = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert left() is None
    finally:
        gc.enable()
    wraps.undo()


def test_outside_of_a_trainer_there_is_none_to_find() -> None:
    assert find_trainer() is None
