"""`akka-otel show`: runs from the files that they wrote, or from anybody's OTLP/JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TextIO

from akka_otel_callbacks.cli.beside import beside
from akka_otel_callbacks.cli.data import write_csv, write_json
from akka_otel_callbacks.cli.open import open_runs, usual_folder
from akka_otel_callbacks.cli.output import printable, stderr, stdout
from akka_otel_callbacks.cli.table import count_of
from akka_otel_callbacks.cli.view import view
from akka_otel_callbacks.reading import Run


class As(Enum):
    """What is printed."""

    TABLES = "tables"
    JSON = "json"
    CSV = "csv"


WRITERS: Mapping[As, Callable[[Sequence[Run], TextIO], None]] = {As.JSON: write_json, As.CSV: write_csv}


def show(paths: Sequence[Path], *, every_run: bool = False, form: As = As.TABLES) -> None:
    """Prints the newest run of each path with its figures, spans and warnings, several beside each other. What cannot
    be shown ends with the reason: exit code 2 for a path that is no such place, 1 for a file that holds no telemetry.

    Args:
        paths: files, runs' folders, or folders of runs. By default it is the folder that runs write to.
        every_run: shows all runs in the files, one after the other, and all processes of each.
        form: tables for a person, or data.
    """
    opened = [open_runs(path) for path in paths or (usual_folder(),)]
    runs = [run for each in opened for run in (each.runs if every_run else each.runs[-1:])]
    notes = [note for each in opened for note in each.notes]
    for each in opened:
        if not each.runs:
            name = printable(str(each.place), longest=len(str(each.place)))
            notes.append(f"{name} holds no figures yet: a run writes its first ones after its first step.")
        elif len(each.runs) > 1 and not every_run:
            notes.append(f"{count_of(len(each.runs) - 1, 'earlier run')} in the same files: --all shows them, too.")
    if form is not As.TABLES:
        WRITERS[form](runs, sys.stdout)
    elif len(runs) > 1 and not every_run:
        stdout().print(beside(runs, stdout().width))
    else:
        for run in runs:
            stdout().print(view(run, stdout().width, every_process=every_run))
    for note in notes:
        (stdout() if form is As.TABLES else stderr()).print(note, style="dim", soft_wrap=True)
