"""The rooms of the house: imports between them flow one way, and the README's picture shows them all."""

from __future__ import annotations

import graphlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.laws.source import MODULES, PACKAGE, ROOT, SOURCE, own_imports

HIDDEN = re.compile(r"^\.|__pycache__|\.egg-info$")


def flow(place: Callable[[str], str], within: str = "") -> dict[str, set[str]]:
    """Which place imports which others.

    Args:
        place: gives a module's place.
        within: the folder whose modules count; empty for all of them.
    """
    arrows: dict[str, set[str]] = defaultdict(set)
    for module in MODULES.values():
        for name in own_imports(module):
            if not within or (module.lies_in(within) and MODULES[name].lies_in(within)):
                arrows[place(module.name)] |= {place(name)} - {place(module.name)}
    return arrows


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """The places of one circle in the order of the imports; empty where there is none."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return [*reversed(error.args[1])]
    return []


def test_no_module_imports_itself_through_others() -> None:
    """Imports within functions count, too: they only hide a circle."""
    assert circle(flow(str)) == []


def test_the_parts_of_the_package_flow_one_way() -> None:
    assert circle(flow(lambda name: name.partition(".")[0])) == []


@pytest.mark.parametrize("house", ["common", "trl", "verl", "cli", "reading", "replay"])
def test_rooms_flow_one_way(house: str) -> None:
    """A room is a folder of the house, or a file beside them."""
    rooms = flow(lambda name: ".".join(name.split(".")[:2]), house)
    assert circle(rooms) == [], f"rooms of {house} import each other in a circle"


def test_a_circle_would_be_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def pictured() -> Iterator[tuple[int, str]]:
    """Every folder of the README's picture with how far its line is indented. A line shows one or more, in columns."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"```\n(registry/.*?)```", text, re.DOTALL)
    for line in picture.splitlines():
        for folder in re.findall(r"(?:^|\s{2,})([\w/]+)/(?:\s|$)", line):
            yield len(line) - len(line.lstrip()), folder


def folders(place: Path) -> set[str]:
    """Those with a file in them: what git leaves behind of one that moved has compiled ones only."""
    found = [path for path in place.iterdir() if path.is_dir() and not HIDDEN.search(path.name)]
    return {path.name for path in found if any(file.is_file() and file.suffix != ".pyc" for file in path.rglob("*"))}


def test_the_picture_has_the_projects_folders() -> None:
    ignored = {line.strip("/*\n") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    shown = {folder.partition("/")[0] for indent, folder in pictured() if indent == 0}
    assert shown == folders(ROOT) - ignored


def test_the_picture_has_the_packages_rooms() -> None:
    shown: dict[str, set[str]] = {}
    for indent, folder in pictured():
        if indent == 2:
            rooms = shown[folder] = set()
        elif indent > 2:
            rooms.add(folder)
    there = {house: folders(SOURCE / house) for house in folders(SOURCE)}
    assert shown == there, f"the README's picture and src/{PACKAGE} differ"
