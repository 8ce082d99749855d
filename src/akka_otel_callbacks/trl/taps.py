"""Listens to methods of trainers.

They are tapped on their class, once and for good, and a tap asks at each call whether somebody listens to that very
object. A wrap on the instance would be lost with a temporary trainer, copied with a trainer that is copied, stand in
the way of a trainer that is pickled, and hide what somebody else patches on the class.
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
"""What a method was called with: the positional arguments, the object first, and the named ones."""


def argument(of: Arguments, at: int, name: str) -> Any:
    """One argument of a call, by its position (0 is the object) or by its name. None where it was not given."""
    positional, named = of
    return positional[at] if len(positional) > at else named.get(name)


Hook = Callable[[Any, Arguments, float], None]
"""Called after a tapped method with its result, its arguments and its duration in seconds."""
OftenHook = Callable[[Any, Arguments], None]
"""Called after a method of each micro-batch with its result and its arguments."""
ASKED_EVERY = 8
"""Of a method that is called often, the calls that pass from one question to its listener to the next. To ask at each
call takes a tenth of what it costs to hear it."""

TAP = "__akka_otel_tap__"
"""On a tap, the tap itself. What `functools.wraps` makes of a tap has the attribute, too, but is not its value."""

RETURN_EARLY = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
"""Methods whose call returns before they have run: there is nothing to hear at its end."""

_changing = threading.RLock()
"""Held while taps and listeners are added and removed. Calls only read what is never changed in place."""


@dataclass(slots=True, eq=False)
class _Entry:
    """Who hears the calls of one method of one object."""

    listener: Listener
    owner: weakref.ReferenceType[object]
    """It ends the entry with the owner, so that whoever gets its ID later is not heard in its place."""
    hears: Callable[[], bool]
    after: Callable[..., None]
    before: Callable[[], object] | None = None
    failed: Callable[[BaseException, float], object] | None = None
    inside: set[int] = field(default_factory=set)
    """The threads that are in a call."""
    is_inside: bool = False
    """Of a method that is called often: one thread does that."""
    unasked: int = 0
    """How many calls may pass before `hears` is asked again."""
    is_new: bool = True
    """Whether the method was not called so far."""


class _Hearers(dict[int, tuple[_Entry, ...]]):
    """Who hears the methods of one name, by the object's ID, in the order in which they came. A tap refers to them, and
    what a tap refers to may be pickled: then it is those of the process that it comes to."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> tuple[Callable[[str], _Hearers], tuple[str]]:
        return _hearers, (self._name,)


_all_hearers: dict[str, _Hearers] = {}


def _hearers(name: str) -> _Hearers:
    with _changing:
        return _all_hearers.setdefault(name, _Hearers(name))


class Listener:
    """Hears the calls of methods, from the first `after` to `end`. A method is heard by `after` or by `after_often`,
    never by both.

    Args:
        hears: asked at each call, of a method that is called often at some calls. A listener that does not hear leaves
            the call alone.
    """

    def __init__(self, hears: Callable[[], bool] = lambda: True) -> None:
        self.hears = hears
        self.uncalled: set[str] = set()
        """The methods that were not called so far."""
        self._own: dict[tuple[int, str], _Entry] = {}

    def after(
        self,
        owner: object,
        name: str,
        hook: Hook,
        before: Callable[[], None] | None = None,
        failed: Callable[[BaseException, float], None] | None = None,
    ) -> bool:
        """Calls `hook` after each call of `owner.name` that returns, `failed` with the exception and the seconds of
        each that raises, and `before` ahead of each. The call itself, its result and its exceptions pass unchanged,
        and a failing hook is reported, not raised. Of a call within a call, as of a method that a subclass extends,
        only the outer one is heard. False where the owner has no such method."""
        if not callable(getattr(owner, name, None)) or not tap(type(owner), name, _heard):
            return False
        guarded_failed = guarded(failed) if failed is not None else None
        self._add(owner, name, hook, before, guarded_failed)
        return True

    def after_often(self, owner: object, name: str, hook: OftenHook) -> bool:
        """The same for a method of each micro-batch, which one thread calls. It is not timed, and a listener that hears
        no longer may be told of a few more calls, unless another one listens. False where the owner has no such method.
        """
        if not callable(getattr(owner, name, None)):
            return False
        # Each tap on the way costs. With a method of the instance's own nobody knows which class's it calls in turn.
        first_only = name not in getattr(owner, "__dict__", {})
        if not tap(type(owner), name, _heard_often, first_only=first_only):
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
        """The hooks refer to whom a listener is part of."""
        own, hearers = self._own.pop((owner, name), None), _hearers(name)
        if left := tuple(entry for entry in hearers.get(owner, ()) if entry is not own):
            hearers[owner] = left
        else:
            hearers.pop(owner, None)


def tap(owner: type, name: str, tapped: Callable[[Call, str], Call], *, first_only: bool = False) -> bool:
    """Taps the method on each class of the owner's that defines it, so that it is heard whichever of them is called.
    What somebody put in a tap's place since stays and is tapped in turn. False where no class has it in a form that
    can be tapped.

    Args:
        tapped: makes the tap from the method and its name.
        first_only: only where the calls of such an object's method begin.
    """
    classes = [base for base in owner.__mro__ if name in vars(base)]
    with _changing:
        done = [_tap_own(base, name, tapped) for base in classes[: 1 if first_only else None]]
    return any(done)


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
    """What a class has under a method's name as a function of the object: it may be any callable, bound or not."""
    if inspect.isfunction(method):
        return method
    if hasattr(type(method), "__get__"):
        return lambda self, *args, **kwargs: method.__get__(self, type(self))(*args, **kwargs)
    return lambda self, *args, **kwargs: method(*args, **kwargs)


# A class of a notebook's is pickled with its methods and with whatever those refer to. Listeners and locks are no part
# of it: a tap refers to functions of this module and to `_Hearers`, which are pickled by their names.


def _heard(call: Call, name: str) -> Call:
    """The method, which has whoever listens to its object hear of each call."""
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
    """The same of a method that a step calls for each of its micro-batches. It has nothing in it that such a method
    does not need, and all of it stands here: functions of its own would take a fifth more."""
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
