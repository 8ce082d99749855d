"""README and docs: links that lead somewhere, code that compiles, commands and settings that exist."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from akka_otel_callbacks.cli import app
from tests.laws.source import MODULES, PACKAGE, ROOT, SOURCE
from tools.reference import anchor

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without its blocks of code, which may show what looks like a link."""
    return BLOCK.sub("", text(page))


def blocks(page: Path, language: str) -> Iterator[str]:
    return (code for marked, code in BLOCK.findall(text(page)) if marked == language)


@functools.cache
def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)}


@functools.cache
def public() -> list[str]:
    """The modules that `docs/README.md` lists as the public surface."""
    return re.findall(rf"^\| `({PACKAGE}[\w.]*)`", text(ROOT / "docs/README.md"), re.MULTILINE)


@PAGE
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if place:
            assert place in anchors(target), f"{page.name} links to {link}, and {target.name} has no such heading"


def test_every_page_is_reached_from_the_pages_list() -> None:
    listed = {
        (ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(prose(ROOT / "docs/README.md"))
    }
    assert {*ROOT.glob("docs/**/*.md")} - {ROOT / "docs/README.md"} <= listed


@PAGE
def test_python_compiles_and_imports_the_public_surface(page: Path) -> None:
    for code in blocks(page, "python"):
        tree = ast.parse(code.replace("…", "..."))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                assert node.module in public(), f"{page.name} imports from {node.module}, which is not public"
                exported = ast.literal_eval(_all(node.module.removeprefix(PACKAGE).lstrip(".")))
                modules = {name.removeprefix(f"{node.module}.") for name in public()}
                assert {alias.name for alias in node.names} <= {*exported, *modules}


def _all(module: str) -> str:
    """What a module exports, read without importing its engine."""
    for node in MODULES[module].tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.unparse(node.value)
    return "[]"


def test_the_public_surface_is_there() -> None:
    assert len(public()) > 5
    for name in public():
        assert name.removeprefix(f"{PACKAGE}.") in {*MODULES, PACKAGE}, f"there is no module {name}"


def test_what_stands_beside_the_rooms_is_public() -> None:
    inside = {"", "__main__", "cli", "common", "demo", "reading", "replay"}
    faces = {name.partition(".")[0] for name in MODULES} - inside
    assert faces == {name.removeprefix(PACKAGE).lstrip(".").partition(".")[0] for name in public()} - inside


def test_what_is_declared_public_can_be_imported_without_an_engine() -> None:
    for name in public():
        if not name.startswith((f"{PACKAGE}.trl", f"{PACKAGE}.verl")):
            module = importlib.import_module(name)
            assert all(hasattr(module, exported) for exported in getattr(module, "__all__", ()))


@PAGE
def test_commands_exist(page: Path) -> None:
    command: Any = typer.main.get_command(app)
    for name, rest in re.findall(r"(?<![\w/.\[\"-])akka-otel ([a-z]+)\b([^`\n#|]*)", text(page)):
        if name in command.commands:
            options = {option for parameter in command.commands[name].params for option in parameter.opts}
            assert {*re.findall(r"(?<!\S)(--[\w-]+)", rest)} <= options, f"{page.name}: akka-otel {name}{rest}"
        else:
            pytest.fail(f"{page.name} names a command that does not exist: akka-otel {name}")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design/decisions.md", "docs/README.md"])
def test_files_that_are_named_exist(page: str) -> None:
    """As a path from the project's folder, or from the package's."""
    for path in re.findall(r"`((?:\w+/)+[\w.]*)`", prose(ROOT / page)):
        assert (ROOT / path).exists() or (SOURCE / path).exists(), f"{page} names {path}"


@PAGE
def test_make_targets_exist(page: Path) -> None:
    makefile = text(ROOT / "Makefile")
    for target in re.findall(r"(?:`|^)make ([a-z][\w-]*)", text(page), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


@PAGE
def test_extras_exist(page: Path) -> None:
    project = text(ROOT / "pyproject.toml").partition("[project.optional-dependencies]")[2].partition("\n\n")[0]
    known = {*re.findall(r"^(\w+) = \[", project, re.MULTILINE)}
    for extras in re.findall(r"akka-otel-callbacks\[([\w,]+)\]", text(page)):
        assert {*extras.split(",")} <= known, page.name


@PAGE
def test_our_variables_are_read_somewhere(page: Path) -> None:
    read = {str(word.value) for module in MODULES.values() for word in module.words}
    mentioned = {*re.findall(r"\bAKKA_[A-Z_]*[A-Z]\b", text(page))}
    assert {name for name in mentioned if not any(name in word for word in read)} == set()
