"""Listens to methods of trainers.

A method is tapped on its class, once and for good. At each call, the tap asks whether somebody listens to the object of
the call. A wrapper on the instance would be lost with a temporary trainer, be copied with a trainer, keep a trainer
from being pickled, and hide what somebody else patches on the class.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter
from typing import Any

from akka_otel_callbacks.common.guard import guarded, report

Call = Callable[..., Any]


Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of a call: the positional ones, beginning with the object, and the named ones."""


def argument(of: Arguments, at: int, name: str) -> Any:
    """One argument of a call, by its position (0 is the object) or else by its name. None if it was not given."""
    positional, named = of
    return positional[at] if len(positional) > at else named.get(name)


Hook = Callable[[Any, Arguments, float], None]
"""Called after a tapped method with its result, its arguments and its duration in seconds."""
OftenHook = Callable[[Any, Arguments], None]
"""Called after a method of each micro-batch with its result and its arguments."""
ASKED_EVERY = 8
"""How many calls of a method that is called often share one question to its listener. Asking at each call would take a
tenth of what hearing it costs."""

TAP = "__akka_otel_tap__"
"""The attribute of a tap that holds the tap itself. A function that `functools.wraps` makes of a tap has the attribute,
too, but is not its value."""

RETURN_EARLY = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
"""Kinds of methods that return before they have run, so that there is nothing to hear at the end of a call."""

_changing = threading.RLock()
"""Held while taps and listeners are added and removed. Calls only read what is never changed in place."""


@dataclass(slots=True, eq=False)
class _Entry:
    """Who hears the calls of one method of one object."""

    listener: Listener
    owner: weakref.ReferenceType[object]
    """Ends the entry with the owner, so that an object that later gets the same ID is not heard in its place."""
    hears: Callable[[], bool]
    after: Callable[..., None]
    before: Callable[[], object] | None = None
    failed: Callable[[BaseException, float], object] | None = None
    inside: set[int] = field(default_factory=set)
    """The threads that are in a call."""
    is_inside: bool = False
    """The same for a method that is called often. Only one thread calls such a method."""
    unasked: int = 0
    """How many calls may pass before `hears` is asked again."""
    is_new: bool = True
    """Whether the method has not been called yet."""


class _Hearers(dict[int, tuple[_Entry, ...]]):
    """Who hears the methods of one name, by the object's ID, in the order in which they came. A tap refers to this
    object and may be pickled with it. In the other process it becomes the one that is there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[[str], _Hearers], tuple[str]]:
        return _hearers, (self._name,)


_all_hearers: dict[str, _Hearers] = {}


def _hearers(name: str) -> _Hearers:
    with _changing:
        return _all_hearers.setdefault(name, _Hearers(name))


class Listener:
    """Hears the calls of methods, from the first `after` to `end`. Each method is heard by either `after` or
    `after_often`.

    Args:
        hears: asked at each call, or at some calls of a method that is called often. If it says no, the listener leaves
            the call alone.
    """

    def __init__(self, hears: Callable[[], bool] = lambda: True) -> None:
        self.hears = hears
        self.uncalled: set[str] = set()
        """The methods that have not been called yet."""
        self._own: dict[tuple[int, str], _Entry] = {}

    def after(
        self,
        owner: object,
        name: str,
        hook: Hook,
        before: Callable[[], None] | None = None,
        failed: Callable[[BaseException, float], None] | None = None,
    ) -> bool:
        """Calls `before` ahead of each call of `owner.name`, `hook` after each that returns, and `failed`, with the
        exception and the seconds, after each that raises. The call itself, its result and its exceptions pass
        unchanged. A failing hook is reported and not raised. If a call is made within a call, such as that of a method
        that a subclass extends, only the outer one is heard. False if the owner has no such method."""
        if not callable(getattr(owner, name, None)) or not tap(type(owner), name, _heard):
            return False
        guarded_failed = guarded(failed) if failed is not None else None
        self._add(owner, name, hook, before, guarded_failed)
        return True

    def after_often(self, owner: object, name: str, hook: OftenHook) -> bool:
        """The same for a method that one thread calls for each micro-batch. It is not timed. A listener that hears no
        longer may be told of a few more calls, unless another one listens. False if the owner has no such method.
        """
        if not callable(getattr(owner, name, None)) or not tap_often(owner, name):
            return False
        self._add(owner, name, hook)
        return True

    def _add(self, owner: object, name: str, *hooks: Any) -> None:
        key, hearers = id(owner), _hearers(name)
        watched = weakref.ref(owner, lambda _: hearers.pop(key, None))
        entry = _Entry(self, watched, self.hears, *hooks)
        with _changing:
            self._forget(key, name)
            self._own[key, name] = entry
            others = hearers.get(key, ())
            for other in others:
                other.unasked = 0
            hearers[key] = (*others, entry)
            self.uncalled.add(name)

    def end(self) -> None:
        with _changing:
            for owner, name in (*self._own,):
                self._forget(owner, name)

    def _forget(self, owner: int, name: str) -> None:
        """Removes an entry. Its hooks hold references to the objects that the listener is a part of."""
        own, hearers = self._own.pop((owner, name), None), _hearers(name)
        if left := tuple(entry for entry in hearers.get(owner, ()) if entry is not own):
            hearers[owner] = left
        else:
            hearers.pop(owner, None)


def tap(owner: type, name: str, tapped: Callable[[Call, str], Call], *, first_only: bool = False) -> bool:
    """Taps the method on each base of the owner that defines it, so that it is heard whichever of them is called. A
    function that somebody has put in the place of a tap stays, and is tapped in turn. False if no class has the method
    in a form that can be tapped.

    Args:
        tapped: makes the tap from the method and its name.
        first_only: whether to tap only the method that a call on the object reaches first. If that cannot be tapped,
            such as a property, nobody knows which class's method it calls in turn, so all are tapped.
    """
    classes = [base for base in owner.__mro__ if name in vars(base)]
    with _changing:
        if first_only and classes and _tap_own(classes[0], name, tapped):
            return True
        done = [_tap_own(base, name, tapped) for base in classes]
    return any(done)


def tap_often(owner: object, name: str) -> bool:
    """Taps a method that is called for each micro-batch. False if no class has it in a form that can be tapped.

    Each tap on the way costs, so only the method that a call reaches first gets one. If the instance has a method of
    its own, nobody knows which class's method it calls in turn, so all are tapped.
    """
    return tap(type(owner), name, _heard_often, first_only=name not in getattr(owner, "__dict__", {}))


def _tap_own(owner: type, name: str, tapped: Callable[[Call, str], Call]) -> bool:
    method = vars(owner)[name]
    if getattr(method, TAP, None) is method:
        return True
    if isinstance(method, (staticmethod, classmethod, property, type)) or not callable(method):
        return False
    if any(returns_early(method) for returns_early in RETURN_EARLY):
        return False
    tap = functools.wraps(method)(tapped(_unbound(method), name))
    setattr(tap, TAP, tap)
    try:
        setattr(owner, name, tap)
    except Exception:  # noqa: BLE001 - a class that cannot be changed, and says so in its own way
        return False
    return True


def _unbound(method: Any) -> Call:
    """The method as a function of the object. A class may have any callable under the name, bound or not."""
    if inspect.isfunction(method):
        return method
    if hasattr(type(method), "__get__"):
        return lambda self, *args, **kwargs: method.__get__(self, type(self))(*args, **kwargs)
    return lambda self, *args, **kwargs: method(*args, **kwargs)


# A class of a notebook's is pickled with its methods and with whatever those refer to. Listeners and locks are no part
# of it: a tap refers to functions of this module and to `_Hearers`, which are pickled by their names.


def _heard(call: Call, name: str) -> Call:
    """The method as a tap: whoever listens to the object hears each call."""
    hearers = _hearers(name)

    def tap(*args: Any, **kwargs: Any) -> Any:
        owner = args[0] if args else kwargs.get("self")  # it may be called as `Trainer.train(self=trainer)`
        entries = hearers.get(id(owner))
        if entries is None:
            return call(*args, **kwargs)
        thread = get_ident()
        for entry in entries:
            if thread in entry.inside:
                return call(*args, **kwargs)
            if entry.hears():
                break
        else:
            return call(*args, **kwargs)
        if entry.before is not None:
            try:  # as `guarded` does it
                entry.before()
            except Exception as error:  # noqa: BLE001 - nothing may reach the training
                report(entry.before.__qualname__, error)
        if entry.is_new:
            entry.is_new = False
            entry.listener.uncalled.discard(name)
        entry.inside.add(thread)
        start = perf_counter()
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            if entry.failed is not None:
                entry.failed(error, perf_counter() - start)
            raise
        finally:
            entry.inside.discard(thread)
        seconds = perf_counter() - start
        try:
            entry.after(result, (args, kwargs), seconds)
        except Exception as error:  # noqa: BLE001 - nothing may reach the training
            report(entry.after.__qualname__, error)
        return result

    return tap


def _heard_often(call: Call, name: str) -> Call:
    """The same for a method that a step calls for each of its micro-batches. It does only what such a method needs, and
    without helper functions, which would take a fifth more time."""
    hearers = _hearers(name)

    def tap(*args: Any, **kwargs: Any) -> Any:
        owner = args[0] if args else kwargs.get("self")
        entries = hearers.get(id(owner))
        if entries is None:
            return call(*args, **kwargs)
        for entry in entries:
            if entry.is_inside:
                return call(*args, **kwargs)
            if entry.unasked:
                entry.unasked -= 1
                break
            if entry.hears():
                entry.unasked = ASKED_EVERY - 1
                break
        else:
            return call(*args, **kwargs)
        if entry.is_new:
            entry.is_new = False
            entry.listener.uncalled.discard(name)
        entry.is_inside = True
        try:
            # An empty dictionary that is unpacked takes as long as all the questions above.
            result = call(*args, **kwargs) if kwargs else call(*args)
        finally:
            entry.is_inside = False
        try:
            entry.after(result, (args, kwargs))
        except Exception as error:  # noqa: BLE001 - nothing may reach the training
            report(entry.after.__qualname__, error)
        return result

    return tap
