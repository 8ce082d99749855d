"""TensorBoard's event files, as TRL's trainers and verl's logger `tensorboard` write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay.log import LATEST_NS, Log, Row, Unreadable
from akka_otel_callbacks.replay.scalars import step_number

MARK = b"brain.Event:"
"""Bytes in the first record of every event file."""
TRAIN, EVAL, EPOCH = "train/", "eval/", "train/epoch"
VALIDATION = "val/loss"
"""The key of a validation of verl's supervised trainers."""
OF_TRL = frozenset({EPOCH, "train/learning_rate", "train/train_loss"})
"""transformers writes the epoch into every row; verl never does."""


class Scalar(NamedTuple):
    tag: str
    step: int
    time_s: float
    value: float


def is_one(path: Path) -> bool:
    """Whether a file begins as an event file does."""
    with path.open("rb") as file:
        return MARK in file.read(64)


def read(paths: Sequence[Path]) -> Log:
    """The rows of one or several files, in the order of their times.

    Raises:
        Unreadable: the reader is not installed.
    """
    files = sorted(([*_scalars(path)] for path in paths), key=lambda scalars: scalars[0].time_s if scalars else 0)
    is_trl = any(scalar.tag in OF_TRL for scalars in files for scalar in scalars)
    log = Log(names.RunEngine.TRL if is_trl else names.RunEngine.VERL)
    for part, scalars in enumerate(files):
        for row in _rows(scalars):
            number, time_s = step_number(row[0].step), row[-1].time_s
            values = {_key(scalar.tag) if is_trl else scalar.tag: scalar.value for scalar in row}
            if number is not None:
                log.rows.append(Row(number, values, int(time_s * 1e9) if 0 < time_s < LATEST_NS / 1e9 else None, part))
    return log


def _key(tag: str) -> str:
    """TRL's log key: transformers puts rows into groups, and the group takes the place of what evaluations begin
    with."""
    if tag.startswith(TRAIN):
        return tag[len(TRAIN) :]
    return f"eval_{tag[len(EVAL) :]}" if tag.startswith(EVAL) else tag


def _rows(scalars: Iterable[Scalar]) -> Iterator[list[Scalar]]:
    """What one call of the logger wrote."""
    row: list[Scalar] = []
    for scalar in scalars:
        if row and _begins(scalar, row):
            yield row
            row = []
        row.append(scalar)
    if row:
        yield row


def _begins(scalar: Scalar, row: Sequence[Scalar]) -> bool:
    """Whether a scalar is of another call than the row before it: of another step, behind the epoch, which transformers
    puts last, a validation that verl logs by itself, or one that was there already."""
    is_apart = scalar.step != row[0].step or row[-1].tag == EPOCH or scalar.tag == VALIDATION
    return is_apart or any(scalar.tag == before.tag for before in row)


def _scalars(path: Path) -> Iterator[Scalar]:
    for event in _events(path):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                yield Scalar(value.tag, event.step, event.wall_time, value.simple_value)


def _events(path: Path) -> Iterator[Any]:
    """The events of a file, as far as it is whole."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    except ImportError as error:
        raise Unreadable(
            f"{path} is an event file, and its reader is missing: pip install 'akka-otel-callbacks[tensorboard]' "
            f"({error})"
        ) from error
    yield from LegacyEventFileLoader(str(path)).Load()
