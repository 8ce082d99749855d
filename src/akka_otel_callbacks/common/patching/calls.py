"""Runs functions of ours before, after or around every call of somebody else's function.

Such a hook cannot harm the call by failing: that is reported and costs the hook's own figures, and what the function
returns or raises is passed on as it is. The function may be a coroutine function; a hook never is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import report
from akka_otel_callbacks.common.patching.copies import holders_of, replace_in

HOOKS = "__akka_otel_hooks__"
"""The attribute of a hooked function that holds its hooks."""

out_of_reach: list[str] = []
"""Descriptions of those who still hold an original function, because they copied it before it was hooked."""


class Call:
    """One call of a hooked function.

    Attributes:
        function: the function as it was before this hook was put on it.
        args, kwargs: what it is called with. A hook that wants others sets new ones before the call.
        result: what it returned. None before its end. A hook that wants another result sets it after the call.
        error: what it raised. None if it returned. A hook that has to end the caller's work sets it after the call.
    """

    __slots__ = ("args", "error", "function", "kwargs", "result")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def owner(self) -> Any:
        """The object whose method is called."""
        return self.get(0, "self")

    def get(self, at: int, name: str) -> Any:
        """One argument, at its place or by its name. None where it was not given."""
        return self.args[at] if len(self.args) > at else self.kwargs.get(name)

    def outcome(self) -> Any:
        """What the caller gets of a call that returned."""
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.result

    def bound(self) -> inspect.BoundArguments:
        """The arguments that were given, by name.

        Raises:
            TypeError: the function does not take them.
        """
        return _signature(self.function).bind(*self.args, **self.kwargs)


Hook = Callable[[Call], Iterator[None]]
SimpleHook = Callable[[Call], object]


def before(owner: Any, name: str, hook: SimpleHook, *, copies: bool = True) -> None:
    """Calls `hook` before each call of `owner.name`; see `around`."""
    around(owner, name, _Plain(hook, is_before=True), copies=copies)


def after(owner: Any, name: str, hook: SimpleHook, *, copies: bool = True) -> None:
    """Calls `hook` after each call of `owner.name` that returns; see `around`."""
    around(owner, name, _Plain(hook, is_before=False), copies=copies)


def around(owner: Any, name: str, hook: Hook, *, copies: bool = True) -> None:
    """Runs `hook` with each call of `owner.name`: up to its `yield` before the call, and what follows at the end of the
    call, be it that the function returned or that it raised. A hook that returns without a `yield` sees no end.

    The same hook is put on a function once. Several hooks may be on one.

    Args:
        owner: a module, whose functions others may have copied before, or a class.
        name: of the function or method.
        hook: a generator function of a module.
        copies: whether a module's function is replaced where others have copied it, too.

    Raises:
        AttributeError: the owner has no such name, as in another version.
        TypeError: a class has something else under that name than a method of its instances.
    """
    original = getattr(owner, name)
    hooks: tuple[Hook, ...] = getattr(original, "__dict__", {}).get(HOOKS, ())
    if hook in hooks:
        return
    if isinstance(owner, type) and not _is_method(inspect.getattr_static(owner, name)):
        raise TypeError(f"{owner.__qualname__}.{name} is no method of its instances")
    # asked for before the replacement, which holds the original, too
    holders = holders_of(original, owner) if copies and isinstance(owner, ModuleType) else []
    replacement = _hooked(original, hook)
    setattr(replacement, HOOKS, (*hooks, hook))
    setattr(owner, name, replacement)
    for holder in holders:
        if (who := replace_in(holder, original, replacement)) is not None:
            out_of_reach.append(f"{owner.__name__}.{name} in {who}")


def is_hooked(owner: Any, name: str, hook: Hook | SimpleHook) -> bool:
    """Whether this hook is on `owner.name`."""
    hooks = getattr(getattr(owner, name, None), "__dict__", {}).get(HOOKS, ())
    return any(hook in (found, _plain(found)) for found in hooks)


def _hooked(function: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
    """The function with the hook around it. A class that was defined in a notebook is pickled with its methods and with
    whatever these refer to: here nothing but importable names. They are kept in the function, because a module may have
    lost its names when a `__del__` is called."""
    guard, call_of = _HookGuard, Call

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        call = call_of(function, args, kwargs)
        with guard(hook, call):
            call.result = await function(*call.args, **call.kwargs)
        return call.outcome()

    def called(*args: Any, **kwargs: Any) -> Any:
        call = call_of(function, args, kwargs)
        with guard(hook, call):
            call.result = function(*call.args, **call.kwargs)
        return call.outcome()

    return functools.wraps(function)(awaited if inspect.iscoroutinefunction(function) else called)


class _HookGuard:
    """Runs a hook around a call, and keeps the hook's failures from the caller."""

    __slots__ = ("_call", "_hook", "_rest")

    def __init__(self, hook: Hook, call: Call) -> None:
        self._hook = hook
        self._call = call
        self._rest: Iterator[None] | None = None

    def __enter__(self) -> None:
        rest = None
        try:
            rest = self._hook(self._call)
            next(rest)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - nothing may reach the caller
            report(_plain(self._hook).__qualname__, error)
        else:
            self._rest = rest

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._rest is None:
            return
        self._call.error = error
        try:
            next(self._rest)
        except StopIteration:
            pass
        except Exception as failure:  # noqa: BLE001 - nothing may reach the caller
            report(_plain(self._hook).__qualname__, failure)
        finally:
            if error is not None:  # its traceback refers to the call, and would keep the arguments alive with itself
                self._call.error = None


class _Plain:
    """A plain function as a hook. Two of the same function are equal, in another process, too."""

    # A dataclass writes and compiles code of its own, which would take as long as the rest of this module's import.
    __slots__ = ("hook", "is_before")

    def __init__(self, hook: SimpleHook, *, is_before: bool) -> None:
        self.hook = hook
        self.is_before = is_before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Plain) and (self.hook, self.is_before) == (other.hook, other.is_before)

    def __hash__(self) -> int:
        return hash((self.hook, self.is_before))

    def __call__(self, call: Call) -> Iterator[None]:
        if self.is_before:
            self.hook(call)
        yield
        if not self.is_before and call.error is None:
            self.hook(call)


def _plain(hook: Hook | SimpleHook) -> Any:
    return hook.hook if isinstance(hook, _Plain) else hook


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _is_method(attribute: Any) -> bool:
    return inspect.isroutine(attribute) and not isinstance(attribute, (staticmethod, classmethod))
