"""verl's configuration, as its trainer prints it at its begin."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.replay.console_lines import Printed

MOST_LINES = 5000
"""The most lines of a printed configuration, which has about a thousand."""
BEGIN = "{"
OPENING, CLOSING = "{[(", "}])"
TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")
"""A text within it, whose brackets are none of its own."""
PART = re.compile(r"""\s*(?:[]['"{}():,.\d+-]|True\b|False\b|None\b|nan\b|inf\b|$)""")
"""The begin of a line that can be part of one. Ray prints what a process warns of among what the process prints."""
SECTIONS = ("trainer", "data")
"""What every configuration of verl has."""


class Settings:
    """Reads the lines of a console log and keeps the newest configuration among them."""

    def __init__(self) -> None:
        self.latest: Mapping[str, Any] | None = None
        self._begun: dict[str | None, list[_Begun]] = {}
        """What may be one, by who prints it: processes print at the same time."""

    def read(self, line: Printed) -> None:
        begun = self._begun.setdefault(line.actor, [])
        if line.text.startswith(BEGIN):
            begun.append(_Begun())  # may also be a section of the one before: Ray breaks lines where it flushes
        if PART.match(line.text) is None:
            return
        for one in begun:
            one.add(line.text)
        for one in begun:
            if one.depth <= 0:
                self.latest = _config("\n".join(one.lines)) or self.latest
        begun[:] = [one for one in begun if one.depth > 0 and len(one.lines) < MOST_LINES]


class _Begun:
    """Lines from one that begins as a dictionary does."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0
        """How many of its brackets are open."""

    def add(self, line: str) -> None:
        self.lines.append(line)
        bare = TEXT.sub("", line)
        self.depth += sum(map(bare.count, OPENING)) - sum(map(bare.count, CLOSING))


def _config(text: str) -> Mapping[str, Any] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text in it may have an escape that Python does not know
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found if isinstance(found, dict) and all(isinstance(found.get(name), dict) for name in SECTIONS) else None
