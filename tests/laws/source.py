"""The package's source as trees: who imports whom, and which words stand in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import akka_otel_callbacks

ROOT = Path(__file__).parents[2]
PACKAGE = akka_otel_callbacks.__name__
SOURCE = ROOT / "src" / PACKAGE
ENGINES = ("trl", "verl")


@dataclass(frozen=True)
class Module:
    """One file.

    Attributes:
        name: its dotted name below the package, such as `common.export.push`; of a folder's `__init__.py` the
            folder's name.
        path: the file.
    """

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def imports(self) -> set[str]:
        """What it imports at any time, with full names. What only a type checker reads is left out."""
        return set(_imports(self.tree))

    @cached_property
    def words(self) -> list[ast.Constant]:
        """Every string that is not a docstring or another bare one."""
        nodes = [*ast.walk(self.tree)]
        bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        strings = (node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        return [node for node in strings if id(node) not in bare]

    def lies_in(self, folder: str) -> bool:
        return self.name == folder or self.name.startswith(f"{folder}.")


def modules() -> list[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


MODULES = {module.name: module for module in modules()}
NAMES = "common.vocabulary.names"


def own_imports(module: Module) -> set[str]:
    """The modules of the package that a module imports, by their names below the package."""
    found = set()
    for name in module.imports:
        package, _, rest = name.partition(".")
        while package == PACKAGE and rest:
            if rest in MODULES:
                found.add(rest)
                break
            rest = rest.rpartition(".")[0]
    return found - {module.name}


def _imports(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for alternative in child.orelse:
                yield from _imports(alternative)
        else:
            yield from _imports(child)
