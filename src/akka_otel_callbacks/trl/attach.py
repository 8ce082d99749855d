"""Finds the trainer, which no event hands over, and wraps methods on that one instance for the time of a training."""

from __future__ import annotations

import functools
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.guard import guarded

if TYPE_CHECKING:
    from transformers import Trainer

Hook = Callable[[Any, tuple[Any, ...], float], None]
"""Called after a wrapped method with its result, its positional arguments and its duration in seconds."""


def find_trainer() -> Trainer | None:
    """The trainer whose method is on the call stack, None where none is.

    Meant for `on_init_end` and `on_train_begin` only: up to Python 3.12 reading a frame's locals keeps what they hold
    alive with the frame, and in a step event that would be the batch.
    """
    from transformers import Trainer

    for frame in _frames(sys._getframe(1)):
        candidate = frame.f_locals.get("self")
        if isinstance(candidate, Trainer):
            return candidate
    return None


def _frames(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back


class Wraps:
    """Methods wrapped on instances, all undone by `undo`."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def after(self, owner: object, name: str, hook: Hook, before: Callable[[], None] | None = None) -> bool:
        """Calls `hook` after each call of `owner.name` that returns, and `before` ahead of each. The call itself, its
        result and its exceptions pass unchanged, and a failing hook is reported, not raised. False where the owner
        has no such method."""
        if not callable(getattr(owner, name, None)):
            return False
        call = _weakly_bound(owner, name)
        door = guarded(hook)
        entry = guarded(before) if before is not None else None

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if entry is not None:
                entry()
            start = time.perf_counter()
            result = call(*args, **kwargs)
            door(result, args, time.perf_counter() - start)
            return result

        self._set(owner, name, _like(getattr(owner, name), wrapped))
        return True

    def around(self, owner: object, name: str, wrapper: Callable[..., Any]) -> None:
        """Replaces `owner.name` by `wrapper(original, *args, **kwargs)`."""
        call = _weakly_bound(owner, name)
        self._set(owner, name, _like(getattr(owner, name), functools.partial(wrapper, call)))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _set(self, owner: object, name: str, wrapped: Callable[..., Any]) -> None:
        owner_ref = weakref.ref(owner)
        missing = object()
        before = vars(owner).get(name, missing)

        def restore() -> None:
            found = owner_ref()
            if found is None or vars(found).get(name) is not wrapped:
                return  # gone, or somebody wrapped it after us: pulling ours out would drop theirs
            if before is missing:
                delattr(found, name)
            else:
                setattr(found, name, before)

        setattr(owner, name, wrapped)
        self._undo.append(restore)


def _like(method: Callable[..., Any], wrapped: Callable[..., Any]) -> Callable[..., Any]:
    """`functools.wraps` without its reference to the method, which would tie the owner to itself."""
    functools.update_wrapper(wrapped, method)
    wrapped.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
    del wrapped.__wrapped__  # type: ignore[attr-defined]
    return wrapped


def _weakly_bound(owner: object, name: str) -> Callable[..., Any]:
    """The method without a strong reference to its owner: a wrap that holds the trainer would keep it, and the GPU
    memory of its model, alive after the user's last reference is gone."""
    method = getattr(owner, name)
    if not isinstance(method, MethodType) or method.__self__ is not owner:
        return method  # type: ignore[no-any-return]
    function, owner_ref = method.__func__, weakref.ref(owner)
    return lambda *args, **kwargs: function(owner_ref(), *args, **kwargs)
