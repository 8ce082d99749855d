"""Changes other people's modules after their own import, without importing them, and wraps what is in them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from akka_otel_callbacks.verl.patching.copies import holders_of, replace_in

AfterImport = Callable[[ModuleType], object]
WRAPPED = "__akka_otel_wrapped__"

out_of_reach: list[str] = []
"""Who holds a function as it was before it was wrapped, in words, because it was copied first."""


def after_import(hooks: Mapping[str, AfterImport]) -> None:
    """Calls each hook with its module: at once where the module is imported already, else right after its import and
    before anybody binds a name of it with `from … import`. A hook must not raise."""
    for name in hooks.keys() & sys.modules.keys():
        hooks[name](sys.modules[name])
    sys.meta_path.insert(0, _Finder(hooks))  # type: ignore[arg-type]  # importlib.abc takes long to import


def wrap(
    owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]], *, copies: bool = True
) -> None:
    """Replaces `owner.name` by `around` of it, once: what is wrapped already stays.

    Args:
        owner: a module, whose functions others may have copied before, or a class.
        name: of the function.
        around: makes the replacement.
        copies: whether a function's copies are replaced, too.

    Raises:
        AttributeError: the owner has no such name, as in another version.
    """
    original = getattr(owner, name)
    if WRAPPED in vars(original):
        return
    # asked for before the wrap, which holds it, too
    holders = holders_of(original, owner) if copies and isinstance(owner, ModuleType) else []
    wrapped = functools.wraps(original)(around(original))
    setattr(wrapped, WRAPPED, True)
    setattr(owner, name, wrapped)
    for holder in holders:
        if (who := replace_in(holder, original, wrapped)) is not None:
            out_of_reach.append(f"{owner.__name__}.{name} in {who}")


class _Finder:
    """Finds nothing by itself: what the finders after it find for a hooked name gets a loader that calls the hook."""

    def __init__(self, hooks: Mapping[str, AfterImport]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self._hooks.get(fullname)
        if hook is None:
            return None
        finders: list[Any] = list(sys.meta_path)
        if self not in finders:  # somebody put a finder of their own around each
            return None
        for finder in finders[finders.index(self) + 1 :]:
            find_spec = getattr(
                finder, "find_spec", None
            )  # one of an older kind, such as that of an old `six`, has none
            spec = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, hook)
                return spec  # type: ignore[no-any-return]
        return None


class _Loader:
    def __init__(self, loader: Any, hook: AfterImport) -> None:
        self._loader = loader
        self._hook = hook

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._hook(module)

    def __getattr__(self, name: str) -> Any:
        # inspect, pkgutil and debuggers ask the loader for source, resources and paths; a copy has no `__init__`
        return getattr(vars(self).get("_loader"), name)
