"""Taps on classes: calls pass unchanged, only who is listened to is heard, and hosts' patches stand beside them."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import logging
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from akka_otel_callbacks.trl import taps
from akka_otel_callbacks.trl.running import find_trainer, tap_train
from akka_otel_callbacks.trl.taps import ASKED_EVERY, Listener, argument


class Owner:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def method(self, first: int, *rest: int, key: str = "") -> tuple[Any, ...]:
        """Says what it got."""
        self.calls.append((first, rest, key))
        if first < 0:
            raise ValueError(first)
        return first, rest, key


@pytest.fixture
def owner_type() -> type[Owner]:
    """A class of the test's own: a tap stays for good."""
    own = {name: value for name, value in vars(Owner).items() if name in ("__init__", "method")}
    return type("Owner", (), own)


@pytest.fixture
def owner(owner_type: type[Owner]) -> Owner:
    return owner_type()


class Heard:
    """A listener to one method, and what it heard."""

    def __init__(self, owner: object, name: str = "method", hears: Callable[[], bool] = lambda: True) -> None:
        self.listener = Listener(hears)
        self.calls: list[tuple[Any, ...]] = []
        self.can = self.listen(owner, name, lambda *call: self.calls.append(call))

    def listen(self, *what: Any) -> bool:
        return self.listener.after(*what)

    @property
    def arguments(self) -> list[Any]:
        return [call[1][0][1:] for call in self.calls]


class HeardOften(Heard):
    def listen(self, *what: Any) -> bool:
        return self.listener.after_often(*what)


either = pytest.mark.parametrize("heard_as", [Heard, HeardOften])


@pytest.fixture(autouse=True)
def _no_listener_is_left() -> Any:
    yield
    for hearers in taps._all_hearers.values():
        hearers.clear()


# -- a call


def test_a_call_passes_unchanged(owner: Owner) -> None:
    heard = Heard(owner)
    assert heard.can
    assert owner.method(1, 2, key="k") == (1, (2,), "k")
    ((result, args, seconds),) = heard.calls
    assert (result, args) == ((1, (2,), "k"), ((owner, 1, 2), {"key": "k"}))
    assert [argument(args, 1, "first"), argument(args, 2, "key"), argument(args, 3, "key")] == [1, 2, "k"]
    assert argument(args, 3, "other") is None
    assert seconds >= 0
    assert type(owner)().method(3) == (3, (), "")
    assert len(heard.calls) == 1, "another instance has nothing to do with it"


@either
def test_an_exception_passes_and_calls_no_hook(owner: Owner, heard_as: type[Heard]) -> None:
    heard = heard_as(owner)
    with pytest.raises(ValueError):
        owner.method(-1)
    assert not heard.calls
    owner.method(1)
    assert len(heard.calls) == 1


def test_a_failing_hook_is_reported_once(owner: Owner, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("hook")

    Listener().after(owner, "method", fails, fails)
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        assert owner.method(1) == owner.method(1) == (1, (), "")
    assert len(caplog.records) == 1


def test_what_comes_before_and_how_long_it_took(owner_type: type[Owner]) -> None:
    order: list[Any] = []

    class Slow(owner_type):  # type: ignore[misc, valid-type]
        def method(self, *args: Any, **kwargs: Any) -> Any:
            order.append("call")
            time.sleep(0.05)
            return super().method(*args, **kwargs)

    slow = Slow()
    Listener().after(slow, "method", lambda *call: order.append(call[2]), lambda: order.append("before"))
    slow.method(1)
    assert order[:2] == ["before", "call"]
    assert order[2] >= 0.05


# -- whose call


@either
def test_a_subclass_that_extends_a_method_is_one_call(owner_type: type[Owner], heard_as: type[Heard]) -> None:
    class Extended(owner_type):  # type: ignore[misc, valid-type]
        def method(self, first: int, *rest: int, key: str = "") -> tuple[Any, ...]:
            super().method(first)
            return ("extended", *super().method(first, *rest, key=key))

    extended = Extended()
    heard = heard_as(extended)
    assert extended.method(1)[0] == "extended"
    assert [call[0][0] for call in heard.calls] == ["extended"]
    plain = owner_type()
    also = heard_as(plain)
    plain.method(2)
    assert (len(heard.calls), also.arguments) == (1, [(2,)])


@either
def test_a_method_that_calls_another_is_two_calls(owner_type: type[Owner], heard_as: type[Heard]) -> None:
    class Two(owner_type):  # type: ignore[misc, valid-type]
        def outer(self) -> Any:
            return self.method(1), self.method(2)

    two = Two()
    outer, inner = heard_as(two, "outer"), heard_as(two)
    two.outer()
    assert (len(outer.calls), inner.arguments) == (1, [(1,), (2,)])


def test_threads_do_not_hide_each_other_s_calls(owner: Owner) -> None:
    release = threading.Event()

    class Waits(type(owner)):  # type: ignore[misc]
        def method(self, first: int, *rest: int, key: str = "") -> Any:
            if first == 1:
                release.wait(20)
            return super().method(first)

    waits = Waits()
    heard = Heard(waits)
    waiting = threading.Thread(target=waits.method, args=(1,))
    waiting.start()
    waits.method(2)
    release.set()
    waiting.join()
    assert heard.arguments == [(2,), (1,)]


def test_who_does_not_hear_is_told_nothing(owner: Owner) -> None:
    hears = [True]
    heard = Heard(owner, hears=lambda: hears[0])
    owner.method(1)
    hears[0] = False
    owner.method(2)
    heard.listener.end()
    hears[0] = True
    owner.method(3)
    assert heard.arguments == [(1,)]
    assert owner.calls == [(1, (), ""), (2, (), ""), (3, (), "")]


def test_who_does_not_hear_is_soon_told_nothing_of_a_method_that_is_called_often(owner: Owner) -> None:
    hears, asked = [True], []
    listener, heard = Listener(lambda: bool(asked.append(None)) or hears[0]), list[Any]()
    listener.after_often(owner, "method", lambda *call: heard.append(call))
    calls = 3 * ASKED_EVERY
    for _ in range(calls):
        owner.method(1)
    assert (len(heard), len(asked)) == (calls, 3)
    owner.method(1)
    hears[0] = False
    for _ in range(calls):
        owner.method(2)
    assert len(heard) == calls + ASKED_EVERY
    assert len(owner.calls) == 2 * calls + 1


def test_another_listener_hears_from_its_first_call_on(owner: Owner) -> None:
    """Also where the one before it has just left."""
    left, first, second = [False], list[Any](), list[Any]()
    Listener(lambda: not left[0]).after_often(owner, "method", lambda *call: first.append(call))
    owner.method(1)
    left[0] = True
    Listener().after_often(owner, "method", lambda *call: second.append(call))
    owner.method(2)
    assert (len(first), len(second)) == (1, 1)


@either
def test_whoever_gets_the_id_of_an_owner_that_is_gone_is_not_heard(
    owner_type: type[Owner], heard_as: type[Heard]
) -> None:
    owner = owner_type()
    key, heard = id(owner), heard_as(owner)
    del owner
    assert key not in taps._all_hearers["method"]
    taps._all_hearers["method"].clear()
    heard.listener.end()


@either
def test_what_was_never_called_is_known(owner: Owner, heard_as: type[Heard]) -> None:
    heard = heard_as(owner)
    assert heard.listener.uncalled == {"method"}
    owner.method(1)
    assert heard.listener.uncalled == set()


# -- copies, collection, threads


@either
def test_a_copy_calls_its_own_method_and_is_not_heard(owner: Owner, heard_as: type[Heard]) -> None:
    heard = heard_as(owner)
    for other in (copy.copy(owner), copy.deepcopy(owner)):
        other.calls = []
        other.method(7)
        assert other.calls == [(7, (), "")]
    assert (heard.calls, owner.calls) == ([], [])
    assert vars(owner) == {"calls": []}, "nothing on the instance"


class Importable:
    def method(self) -> str:
        return "here"


def test_what_is_tapped_can_be_pickled() -> None:
    owner = Importable()
    heard = Heard(owner)
    assert pickle.loads(pickle.dumps(owner)).method() == "here"
    assert pickle.loads(pickle.dumps(owner.method))() == "here"
    assert pickle.loads(pickle.dumps(Importable.method)) is Importable.method
    assert not heard.calls


@pytest.mark.parametrize("name", ["method", "train"])
def test_a_class_can_be_pickled_by_value(name: str, owner_type: type[Owner]) -> None:
    """As cloudpickle does it with those of a notebook, and with all that their methods refer to."""
    heard = Heard(owner_type())
    owner_type.train = lambda self: None  # type: ignore[attr-defined]
    assert tap_train(owner_type)
    refers_to = inspect.getclosurevars(getattr(owner_type, name))
    assert set(refers_to.nonlocals) <= {"call", "name", "hearers"}
    assert refers_to.globals
    hearers = [refers_to.nonlocals["hearers"]] if name == "method" else []
    for value in (*refers_to.globals.values(), *hearers):
        assert pickle.loads(pickle.dumps(value)) is value
    assert heard.can


def test_a_call_that_names_everything(owner_type: type[Owner]) -> None:
    owner = owner_type()
    hooked: list[Any] = []
    Listener().after(owner, "method", lambda *call: hooked.append(call))
    assert owner_type.method(self=owner, first=1) == (1, (), "")
    given = hooked[0][1]
    assert (argument(given, 1, "first"), argument(given, 2, "second")) == (1, None)
    with pytest.raises(TypeError, match="self"):
        owner_type.method()  # type: ignore[call-arg]


@either
def test_an_owner_that_is_listened_to_dies_with_its_last_reference(
    owner_type: type[Owner], heard_as: type[Heard]
) -> None:
    owner = owner_type()
    heard = heard_as(owner)
    left = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert left() is None
    finally:
        gc.enable()
    assert heard.can


# -- the class


def test_a_tap_looks_like_the_method(owner_type: type[Owner]) -> None:
    signature, source = inspect.signature(owner_type.method), inspect.getsource(owner_type.method)
    Heard(owner_type())
    assert (inspect.signature(owner_type.method), inspect.getsource(owner_type.method)) == (signature, source)
    assert (owner_type.method.__name__, owner_type.method.__doc__) == ("method", "Says what it got.")
    assert (owner_type.method.__module__, owner_type.method.__qualname__) == (__name__, "Owner.method")


def test_a_class_is_tapped_once(owner_type: type[Owner]) -> None:
    assert Heard(owner_type()).can
    tapped = vars(owner_type)["method"]
    assert Heard(owner_type()).can
    assert vars(owner_type)["method"] is tapped


@either
@pytest.mark.parametrize("like_the_original", [True, False])
def test_a_patch_of_somebody_else_runs_whenever_it_came(
    like_the_original: bool, owner_type: type[Owner], heard_as: type[Heard]
) -> None:
    def patch() -> None:
        original = owner_type.method

        def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
            patched_calls.append(args)
            return original(self, *args, **kwargs)

        owner_type.method = functools.wraps(original)(patched) if like_the_original else patched  # type: ignore

    patched_calls: list[Any] = []
    owner = owner_type()
    patch()
    first = heard_as(owner)
    patch()
    owner.method(1)
    assert (len(patched_calls), len(first.calls)) == (2, 1)
    first.listener.end()
    for _ in range(3):
        again = heard_as(owner)
        owner.method(2)
        assert (len(again.calls), len(owner.calls)) == (1, len(owner.calls))
        again.listener.end()
    assert len(patched_calls) == 8, "twice a call, and never deeper"


@either
def test_a_patch_that_replaces_a_tap_is_heard_the_next_time(owner_type: type[Owner], heard_as: type[Heard]) -> None:
    owner = owner_type()
    lost = heard_as(owner)
    owner_type.method = lambda self, *args: ("replaced", args)  # type: ignore
    assert owner.method(1) == ("replaced", (1,))
    assert not lost.calls
    lost.listener.end()
    heard = heard_as(owner)
    assert owner.method(1) == ("replaced", (1,))
    assert heard.arguments == [(1,)]


@either
def test_what_the_instance_has_of_its_own_runs(owner: Owner, heard_as: type[Heard]) -> None:
    heard = heard_as(owner)
    original = owner.method
    owner.method = lambda *args: ("own", original(*args))  # type: ignore[method-assign]
    assert owner.method(1) == ("own", (1, (), ""))
    assert heard.arguments == [(1,)], "as far as it calls the original"
    owner.method = lambda *args: "own"  # type: ignore
    assert owner.method(1) == "own"
    assert len(heard.calls) == 1


@pytest.fixture
def extended_type(owner_type: type[Owner]) -> type[Owner]:
    """Whose method calls the one of a class above."""

    class Own(owner_type):  # type: ignore[misc, valid-type]
        def method(self, *args: Any, **kwargs: Any) -> Any:
            return super().method(*args, **kwargs)

    return Own


@either
def test_a_wrap_that_was_made_before_anybody_listened_is_heard(
    extended_type: type[Owner], heard_as: type[Heard]
) -> None:
    """As of a user who times a method of the trainer: it calls the method that was there before any tap."""
    owner = extended_type()
    original = owner.method
    owner.method = lambda *args: original(*args)  # type: ignore[method-assign]
    heard = heard_as(owner)
    owner.method(1)
    assert heard.arguments == [(1,)]


@either
def test_where_a_class_has_a_property_the_method_that_it_hands_out_is_heard(
    owner_type: type[Owner], extended_type: type[Owner], heard_as: type[Heard]
) -> None:
    """It cannot be tapped itself, and may leave out the next class's method."""

    class Own(extended_type):  # type: ignore[misc, valid-type]
        @property
        def method(self) -> Any:
            return functools.partial(owner_type.method, self)

    owner = Own()
    heard = heard_as(owner)
    owner.method(1)
    assert (heard.can, heard.arguments) == (True, [(1,)])


@either
def test_two_that_are_called_at_once_are_each_heard_once(
    owner_type: type[Owner], extended_type: type[Owner], heard_as: type[Heard]
) -> None:
    """As two trainers in two threads. The class above is tapped, too, for an object of its own."""
    both_inside = threading.Barrier(2, timeout=20)

    class Waits(extended_type):  # type: ignore[misc, valid-type]
        def method(self, *args: Any, **kwargs: Any) -> Any:
            both_inside.wait()
            result = super().method(*args, **kwargs)
            both_inside.wait()
            return result

    owners = [Waits(), Waits()]
    heard = [heard_as(owner) for owner in (*owners, owner_type())]
    threads = [threading.Thread(target=owner.method, args=(at,)) for at, owner in enumerate(owners)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.arguments for each in heard] == [[(0,)], [(1,)], []]


class Callable_:
    def __call__(self, *args: Any) -> Any:
        return args


def described(self: Any, *args: Any) -> Any:
    return self.__class__.__name__, args


@pytest.mark.parametrize(
    ("method", "result"),
    [
        (Callable_(), (1,)),
        (functools.partial(lambda *args: args, "bound"), ("bound", 1)),
        (functools.partialmethod(described, 7), ("Any", (7, 1))),
        (functools.lru_cache(described), ("Any", (1,))),
    ],
    ids=["object", "partial", "partialmethod", "cached"],
)
def test_methods_of_other_make(method: Any, result: Any) -> None:
    owner = type("Any", (), {"method": method})()
    assert owner.method(1) == result
    heard = Heard(owner)
    assert heard.can == callable(method)
    assert owner.method(1) == result
    assert [found for found, _, _ in heard.calls] == ([result] if heard.can else [])


async def asynchronous(self: Any) -> int:
    return 1


def generates(self: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    "method",
    [asynchronous, generates, staticmethod(lambda: 1), classmethod(lambda cls: 1), property(lambda self: lambda: 1)],
    ids=["async", "generator", "static", "class", "property"],
)
def test_what_cannot_be_timed_is_left_alone(method: Any) -> None:
    kind = type("Any", (), {"method": method})
    assert not Heard(kind()).can
    assert vars(kind)["method"] is method


class Frozen(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        raise RuntimeError("nothing is to be changed here")


def test_a_class_that_cannot_be_changed_is_left_alone() -> None:
    owner = Frozen("Owner", (), {"method": lambda self: "its own"})()
    assert not Heard(owner).can
    assert owner.method() == "its own"


@pytest.mark.parametrize("owner", [None, object(), Owner(), 7])
def test_what_has_no_such_method_is_not_listened_to(owner: Any) -> None:
    assert not Heard(owner, "missing").can
    assert not Heard(owner, "calls").can


def test_outside_of_a_trainer_there_is_none_to_find() -> None:
    assert find_trainer() is None


def test_a_method_that_only_getattr_has_is_not_heard() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Callable[[], None]:
            return lambda: None

    assert not Listener().after_often(Proxy(), "method", pytest.fail)
    assert not Listener().after(Proxy(), "method", pytest.fail)
