"""Opens what a user names: the runs behind a path, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from akka_otel_callbacks.cli.output import printable, stderr, stop
from akka_otel_callbacks.cli.table import count_of
from akka_otel_callbacks.common.export.selection import runs_folder
from akka_otel_callbacks.reading import Reader, Run, Source, files, runs

LONG_BYTES = 2**24
"""Bytes. A longer file takes a moment to read, so a bar shows how far it is."""

MOVE_BYTES = 2**18
"""Bytes that move the bar."""


@dataclass(slots=True)
class Opened:
    """The runs of a path, the newest last, and what is to be said of its files.

    Attributes:
        place: the file or the folder that was read, which is another than the user named where that holds several.
        reader: what read them, with each file's account.
    """

    place: Path
    reader: Reader
    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def usual_folder() -> Path:
    """The folder that runs write to if they start here.

    Raises:
        Exit: none has.
    """
    folder = runs_folder(os.environ)
    if not folder.exists():
        raise stop(f"No run has written to {folder} here. Name the folder or the file of one.", code=2)
    return folder


def open_runs(path: Path) -> Opened:
    """Reads a file, a run's folder, or the newest run of a folder of runs.

    Raises:
        Exit: it cannot be read, or holds no telemetry.
    """
    opened = Opened(path, Reader())
    try:
        found = files(path)
        if not found and (below := runs(path)):
            opened.place, found = below[-1], files(below[-1])
            if len(below) > 1:
                opened.notes.append(f"{_shown(path)} holds {len(below)} runs. This is the newest, {below[-1].name}.")
    except OSError as error:
        raise stop(f"{path} cannot be read: {error.strerror}.", code=2) from error
    if not found:
        raise stop(f"{path} holds no telemetry: no metrics.jsonl, traces.jsonl or logs.jsonl.", code=2)
    opened.reader.add(found)
    opened.runs = read(opened.reader)
    opened.notes += _notes(opened.reader.sources.values())
    return opened


def read(reader: Reader) -> list[Run]:
    """Reads the files, with a bar on a terminal where that takes a moment."""
    total = sum(_size(path) for path in reader.sources)
    console = stderr()
    columns = TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    hidden = total < LONG_BYTES or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("reading", total=total)
        unshown = 0

        def advance(more: int) -> None:
            nonlocal unshown
            unshown += more
            if unshown >= MOVE_BYTES:  # a file may have a million short lines
                bar.advance(task, unshown)
                unshown = 0

        return reader.read(advance)


def _notes(sources: Iterable[Source]) -> list[str]:
    """One line for each thing that could not be read. If nothing could be read, the command ends."""
    sources = [*sources]
    failed = [source for source in sources if source.error is not None]
    if len(failed) == len(sources):
        error = failed[0].error
        raise stop(f"{failed[0].path} cannot be read: {error.strerror if error else ''}.", code=2)
    foreign = [source for source in sources if source.unreadable and not source.read_lines]
    if len(foreign) + len(failed) == len(sources):
        number = foreign[0].unreadable
        of_them = f"none of its {number} lines is an" if number > 1 else "its only line is no"
        raise stop(f"{foreign[0].path}: {of_them} OTLP/JSON export.", code=1)
    notes = [f"{_shown(one.path)} cannot be read: {one.error.strerror}." for one in failed if one.error]
    notes += [f"{_shown(one.path)} is no OTLP/JSON, and is left out." for one in foreign]
    for one in sources:
        if one.unreadable and one.read_lines:
            lines = f"{one.unreadable} of {count_of(one.unreadable + one.read_lines, 'line')} of {one.path.name}"
            were = "was" if one.unreadable == 1 else "were"
            notes.append(f"{printable(lines)} could not be read (torn by a crash?) and {were} left out.")
    return notes


def _shown(path: Path) -> str:
    return printable(str(path), longest=len(str(path)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
