"""The file of verl's logger `file`: one JSON object a line, `{"step": 1, "data": {…}}`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay.log import Log, Row
from akka_otel_callbacks.replay.scalars import step_number, with_numbers
from akka_otel_callbacks.replay.text import lines


def is_one(path: Path) -> bool:
    """Whether the first line of a file is one of it."""
    first = next((line.text for line in lines(path) if line.text.strip()), "")
    return _row(first, 0) is not None


def read(paths: Sequence[Path]) -> Log:
    """The rows of one or several files, in their order. A line that is none is counted and left out."""
    log, broken = Log(names.RunEngine.VERL), 0
    for part, path in enumerate(paths):
        for line in lines(path):
            row = _row(line.text, part)
            if row is not None:
                log.rows.append(row)
            elif line.text.strip():
                broken += 1
    if broken:
        log.notes.append(f"Lines that are no rows, such as one that a killed run left half written: {broken}.")
    return log


def _row(line: str, part: int) -> Row | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    data = fields.get("data") if isinstance(fields, dict) else None
    number = step_number(fields.get("step")) if isinstance(fields, dict) else None
    return Row(number, _numbers(data), part=part) if number is not None and isinstance(data, dict) else None


def _numbers(data: dict[str, Any]) -> dict[str, Any]:
    """The logger writes what is not finite as `null`; such a figure is counted and not published."""
    return with_numbers({key: math.nan if value is None else value for key, value in data.items()})
