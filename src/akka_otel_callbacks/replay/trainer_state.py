"""The `trainer_state.json` that transformers writes into each checkpoint, or the log history alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay.log import Log, Row, Unreadable
from akka_otel_callbacks.replay.scalars import step_number, with_numbers
from akka_otel_callbacks.replay.text import text_of, text_of_beginning

HISTORY, STEP, PLANNED = "log_history", "step", "max_steps"
NUMBER_OF_LAST = "global_step"
_HISTORY = re.compile(rf'"{HISTORY}"\s*:\s*\[')
MOST_EPOCHS = 1 << 31
"""transformers counts epochs up to a huge number where the data have no length; `epoch` then is made of the steps."""


def is_one(path: Path) -> bool:
    """Whether a file is a JSON object with a log history, or a list of log rows."""
    begin = text_of_beginning(path).lstrip()
    if begin.startswith("["):
        return f'"{STEP}"' in begin
    return begin.startswith("{") and _HISTORY.search(text_of(path)) is not None


def read(paths: Sequence[Path]) -> Log:
    """The history of the latest of the states: each of a run holds all rows before it.

    Raises:
        Unreadable: the states are of different runs.
    """
    states = sorted((_state(path) for path in paths), key=lambda state: _last(state) or 0)
    if len({repr(state[HISTORY][0]) for state in states if state[HISTORY]}) > 1:
        raise Unreadable("The trainer states are of different runs; replay each run by itself")
    state = states[-1]
    counts_epochs = (number(state.get("num_train_epochs")) or 0) < MOST_EPOCHS
    log = Log(names.RunEngine.TRL, first_is_known=True)
    log.rows = [row for values in state[HISTORY] if (row := _row(values, counts_epochs=counts_epochs)) is not None]
    log.last, log.planned = _last(state), step_number(state.get(PLANNED)) or None
    log.notes += [state["cut"]] if "cut" in state else []
    return log


def _last(state: Mapping[str, Any]) -> int | None:
    return step_number(state.get(NUMBER_OF_LAST))


def _row(values: Any, *, counts_epochs: bool) -> Row | None:
    if not isinstance(values, dict):
        return None
    at = step_number(values.get(STEP))
    kept = {key: value for key, value in values.items() if key != STEP and (key != "epoch" or counts_epochs)}
    return None if at is None else Row(at, with_numbers(kept))


def _state(path: Path) -> dict[str, Any]:
    text = text_of(path)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _cut_off(text)
    state = {HISTORY: found} if isinstance(found, list) else dict(found)
    if not isinstance(state.get(HISTORY), list):
        state[HISTORY] = []
    return state


def _cut_off(text: str) -> dict[str, Any]:
    """What is whole of a file that was cut off, such as by a full disk."""
    begin = _HISTORY.search(text)
    rows, at, decoder = [], begin.end() if begin is not None else text.find("[") + 1, json.JSONDecoder()
    head = text[: begin.start()] if begin is not None else ""
    while at:
        at = _after(text, at)
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        rows.append(row)
    last = re.search(rf'"{NUMBER_OF_LAST}"\s*:\s*(\d+)', head)
    state = {HISTORY: rows, "cut": f"The file is cut off: {len(rows)} whole rows are in it."}
    return state | ({NUMBER_OF_LAST: int(last[1])} if last else {})


def _after(text: str, at: int) -> int:
    """Where the next row begins."""
    while at < len(text) and text[at] in ", \t\r\n":
        at += 1
    return at
