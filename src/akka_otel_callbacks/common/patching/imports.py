"""Changes somebody else's modules right after their import, without importing them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

AfterImport = Callable[[ModuleType], object]


def after_import(hooks: Mapping[str, AfterImport]) -> None:
    """Calls each hook with its module: at once where the module is imported already, else right after its import and
    before anybody binds a name of it with `from … import`. A hook must not raise."""
    for name in hooks.keys() & sys.modules.keys():
        hooks[name](sys.modules[name])
    sys.meta_path.insert(0, _Finder(hooks))  # type: ignore[arg-type]  # importlib.abc takes long to import


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
            find_spec = getattr(finder, "find_spec", None)  # a finder of an older kind, as of an old `six`, has none
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
