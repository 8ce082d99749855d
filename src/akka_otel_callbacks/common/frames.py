"""Reads variables of the functions that are being called, where an engine hands an object to nobody.

Up to Python 3.12, reading a frame's variables writes all of them into a dictionary that the frame keeps. What the
function deletes afterwards stays alive in it, a model on a GPU as well, and it is the very dictionary that a call of
`locals()` gave to the function before. Here it is emptied again, and a function that calls `locals()` is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

GIVE_AWAY = frozenset({"locals", "vars"})
"""Functions that give the dictionary to their caller."""
HELD_BY_FRAME = 3
"""How many references `sys.getrefcount` counts to a dictionary that only its frame and our own variable have."""


def variables(*names: str) -> Iterator[Mapping[str, Any]]:
    """The named variables of the calling functions: for each function that has any of them, those that it has, the
    innermost function first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if found := _read(frame, names):
            yield found
        frame = frame.f_back


def _read(frame: FrameType, names: tuple[str, ...]) -> dict[str, Any]:
    code = frame.f_code
    if not code.co_flags & CO_OPTIMIZED:  # a module, or the body of a class, whose namespace may be of any kind
        return _picked(frame.f_locals, names) if type(frame.f_locals) is dict else {}
    if not _has_any(code, names) or not GIVE_AWAY.isdisjoint(code.co_names):
        return {}
    kept = frame.f_locals
    found = _picked(kept, names)
    if type(kept) is dict and sys.getrefcount(kept) <= HELD_BY_FRAME:  # a debugger may hold it, too
        kept.clear()
    return found


def _picked(namespace: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: namespace[name] for name in names if name in namespace}


def _has_any(code: CodeType, names: tuple[str, ...]) -> bool:
    return any(name in kind for kind in (code.co_varnames, code.co_cellvars, code.co_freevars) for name in names)
