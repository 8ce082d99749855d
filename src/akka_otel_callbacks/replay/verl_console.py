"""verl's console log: `step:1 - actor/loss:0.1 - …`, among all else that the processes of a training print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay.console_lines import Printed, printed
from akka_otel_callbacks.replay.log import Log, Row
from akka_otel_callbacks.replay.scalars import NUMBER, scalar, step_number
from akka_otel_callbacks.replay.verl_settings import Settings

WORD = "step:"
BEGIN = re.compile(rf"(?<![\w/.:-]){WORD}(?P<number>\d+)(?=\s+-(?:\s|$))")
GROUPS = "actor critic timing timing_s response_length prompt_length perf training train val val-core val-aux".split()
"""What verl's keys begin with, as far as a row has at least one of them."""
KNOWN = re.compile(rf"(?:{'|'.join(GROUPS)}|global_seqlen|fully_async)/")
PAIR = re.compile(rf"(?P<key>\S(?:.*?\S)?):(?P<value>{NUMBER})(?P<behind>\s.*)?")
SEPARATOR = re.compile(r"\s+-\s+|^-\s+|\s+-$")
BROKEN = re.compile(r"\S*")
"""A pair that was wrapped within."""
FRAGMENT = re.compile(r"[\d.]+(?:e[-+]?\d*)?|e?[-+]?\d+")
"""What may be the rest of a number."""
MOST_BETWEEN = 100
"""Lines of other processes that may stand within one of verl's that was wrapped."""
ROUNDED = re.compile(r"-?\d+\.\d{3}|-?nan|-?inf")
RATE = re.compile(r"(?:^|/)lr(?:\(|$)")
LEAST_RATE = 0.005
"""Up to 0.4 verl printed three decimals, of which most learning rates have none and 0.001 has one digit."""
TRACES = ("actor_rollout_ref", "TaskRunner", "main_task pid=", "RayPPOTrainer", "verl.trainer", "FSDPSFTTrainer")
"""Words by which the log of a run that made no step is still verl's."""


def is_one(path: Path) -> bool:
    """Whether there is a row, or a trace of verl, in a file."""
    for line in printed(path):
        if any(trace in line.text or trace in (line.actor or "") for trace in TRACES):
            return True
        if (begin := _begin(line)) is not None and KNOWN.search(line.text, begin.end()):
            return True
    return False


def read(paths: Sequence[Path]) -> Log:
    """The rows of one or several files, in their order."""
    log = Log(names.RunEngine.VERL)
    for part, path in enumerate(paths):
        log.rows += (row for line in _joined(printed(path)) if (row := _row(line, part)) is not None)
    return log


def _begin(line: Printed) -> re.Match[str] | None:
    """Where a row begins in a line. Most lines have none, and looking for the word alone takes a tenth of the time."""
    return BEGIN.search(line.text) if WORD in line.text else None


class _Open:
    """A row of the log while its lines are read."""

    def __init__(self, line: Printed, begin: re.Match[str], config: Mapping[str, Any] | None) -> None:
        self.line, self.number, self.config = line, int(begin["number"]), config
        self.text = line.text[begin.end() :]
        self.between = 0

    def goes_on_with(self, line: Printed) -> bool:
        """Takes a line that is the rest of this one, wrapped by a terminal wherever its width ended, and says whether
        it is that."""
        if line.actor not in (self.line.actor, None) or (line.actor is None and self.between):
            return False
        open_end = SEPARATOR.split(self.text)[-1]
        first, *others = SEPARATOR.split(line.text.strip(" "))
        if not open_end or not first:  # wrapped between two pairs
            self.text = f"{self.text.rstrip()} "
            fits = _are_pairs([first, *others] if first else others)
        elif PAIR.fullmatch(open_end):
            fits = bool(FRAGMENT.fullmatch(first)) and bool(others) and _are_pairs(others)
            if not fits and FRAGMENT.fullmatch(first) and not others:
                self.text = self.text[: -len(open_end)]  # nobody knows whether its number ends there
        else:
            fits = bool(PAIR.fullmatch(open_end + first)) and _are_pairs(others)
        if fits:
            self.text += line.text.strip(" ") if self.text.endswith(" ") else line.text
            self.line = self.line._replace(is_whole=line.is_whole)
        return fits


def _are_pairs(pieces: Sequence[str]) -> bool:
    """Whether the rest of a row may be that. Its last piece may go on in the next line."""
    *whole, last = pieces or [""]
    return all(map(PAIR.fullmatch, whole)) and bool(PAIR.fullmatch(last) or BROKEN.fullmatch(last))


def _joined(lines: Iterable[Printed]) -> Iterator[_Open]:
    """The rows, with what was wrapped made whole."""
    row: _Open | None = None
    settings = Settings()
    for line in lines:
        settings.read(line)
        if (begin := _begin(line)) is not None:
            if row is not None:
                yield row
            row = _Open(line, begin, settings.latest)
        elif row is not None and row.goes_on_with(line):
            row.between = 0
        elif row is not None:
            row.between += 1
            if line.actor in (row.line.actor, None) or row.between > MOST_BETWEEN:
                yield row
                row = None
    if row is not None:
        yield row


def _row(read: _Open, part: int) -> Row | None:
    texts = [pair for piece in SEPARATOR.split(read.text) if (pair := PAIR.fullmatch(piece.strip())) is not None]
    if not read.line.is_whole and texts and SEPARATOR.split(read.text)[-1].strip() == texts[-1].group():
        texts.pop()  # half a number may look like a whole one
    values = {pair["key"]: scalar(pair["value"]) for pair in texts}
    if not any(KNOWN.match(key) for key in values):
        return None
    if all(ROUNDED.fullmatch(pair["value"]) for pair in texts):
        values = {
            key: value for key, value in values.items() if not (RATE.search(key) and abs(value or 0) < LEAST_RATE)
        }
    number = step_number(read.number)
    return None if number is None else Row(number, values, read.line.time_ns, part, read.config)
