"""Finds who else holds a function that is about to be replaced, and gives them the replacement.

`from x import f` copies a name. A user's module or another plugin that was imported before ours has such copies, which
a change of `x.f` does not reach.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from types import CellType, FrameType, FunctionType, ModuleType
from typing import Any


def holders_of(function: Any, owner: ModuleType) -> list[Any]:
    """Everything that holds a module's function, but for calls that are under way.

    The garbage collector knows, but takes some fifty milliseconds to say so in a process that has loaded verl. It is
    asked only where more references are counted than those of the module and of the one that has the function's code.
    """
    defined_in = sys.modules.get(getattr(function, "__module__", None) or "", owner)
    namespaces = [vars(module) for module in {id(module): module for module in (owner, defined_in)}.values()]
    if getattr(owner.__spec__, "_initializing", False):  # nobody can have copied a name of it yet
        return []
    known = sum(value is function for namespace in namespaces for value in list(namespace.values()))
    if sys.getrefcount(function) <= known + _references_of_calls():
        return []
    return [holder for holder in gc.get_referrers(function) if not isinstance(holder, FrameType)]


def _references_of_calls() -> int:
    """How many references are counted to a function because a caller has it as a variable and hands it to
    `holders_of`."""
    function = _held_by_this_module
    return _counted(function) - 1


def _counted(function: Any) -> int:
    return sys.getrefcount(function)


def _held_by_this_module() -> None: ...


def replace_in(holder: Any, original: Any, replacement: Any) -> str | None:
    """Puts the replacement where a module, a registry, a class, a closure or a partial has the original.

    Returns:
        None; for any other holder, which keeps the original, who it is.
    """
    try:
        reached = _replace_in(holder, original, replacement)
    except Exception:  # noqa: BLE001 - a holder may be of any class and refuse in any way
        reached = False
    return None if reached else _say(holder)


def _replace_in(holder: Any, original: Any, replacement: Any) -> bool:
    """Whether the holder has the replacement now."""
    kind = type(holder)
    if kind is dict:
        owner = _class_of(holder)
        for key in [key for key, value in holder.items() if value is original]:
            if owner is None:
                holder[key] = replacement
            else:
                setattr(owner, key, replacement)  # a class remembers where it found an attribute
        return not any(key is original for key in holder)
    if kind is list:
        holder[:] = [replacement if item is original else item for item in holder]
        return True
    if kind is CellType:
        holder.cell_contents = replacement
        return True
    if isinstance(holder, partial) and holder.func is original:
        holder.__setstate__((replacement, holder.args, holder.keywords, vars(holder)))  # type: ignore[attr-defined]
        return True
    return False


def _class_of(namespace: dict[str, Any]) -> type | None:
    if "__module__" not in namespace:
        return None
    return next((owner for owner in gc.get_referrers(namespace) if isinstance(owner, type)), None)


def _say(holder: Any) -> str:
    """Where the holder is: in a module under a name, or among a function's defaults."""
    kind = type(holder).__name__
    for owner in gc.get_referrers(holder):
        if isinstance(owner, FunctionType):
            return f"{owner.__module__}.{owner.__qualname__} (its defaults)"
        if type(owner) is dict and isinstance(owner.get("__name__"), str):
            name = next((key for key, value in owner.items() if value is holder), None)
            if name is not None:
                return f"{owner['__name__']}.{name} (a {kind})"
    return f"a {kind}"
