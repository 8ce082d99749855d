"""verl's configuration, as its trainer prints it at its begin."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.replay.console_lines import Printed

MOST_LINES = 5000
"""Of a printed configuration, which has about a thousand."""
BEGIN, END = "{'", "}"
SECTIONS = ("trainer", "data")
"""What every configuration of verl has."""


class Settings:
    """Reads the lines of a console log and keeps the newest configuration among them."""

    def __init__(self) -> None:
        self.latest: Mapping[str, Any] | None = None
        self._begun: dict[str | None, list[str]] = {}
        """The lines that may be one, by who prints them: processes print at the same time."""

    def read(self, line: Printed) -> None:
        if line.text.startswith(BEGIN):
            self._begun[line.actor] = []
        lines = self._begun.get(line.actor)
        if lines is None:
            return
        lines.append(line.text)
        if line.text.rstrip().endswith(END):
            self.latest = _config("\n".join(lines)) or self.latest
        if len(lines) > MOST_LINES:
            del self._begun[line.actor]


def _config(text: str) -> Mapping[str, Any] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a text in it may have an escape that Python does not know
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found if isinstance(found, dict) and all(isinstance(found.get(name), dict) for name in SECTIONS) else None
