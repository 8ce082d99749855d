"""`akka-otel show`: a run from the files that it wrote, or from anybody's OTLP/JSON."""

from __future__ import annotations

from pathlib import Path

from akka_otel_callbacks.cli.open import open_runs
from akka_otel_callbacks.cli.output import printable, stdout
from akka_otel_callbacks.cli.table import count_of
from akka_otel_callbacks.cli.view import view


def show(path: Path, *, every_run: bool = False) -> None:
    """Prints a run's figures, spans and warnings. What cannot be shown ends with the reason: exit code 2 for a path
    that is no such place, 1 for a file that holds no telemetry."""
    opened, console = open_runs(path), stdout()
    if not opened.runs:
        name = printable(str(opened.place), longest=len(str(opened.place)))
        console.print(f"{name} holds no figures yet: a run writes its first ones after its first step.")
    for run in opened.runs if every_run else opened.runs[-1:]:
        console.print(view(run, console.width))
    hidden = 0 if every_run else len(opened.runs) - 1
    if hidden > 0:
        opened.notes.append(f"{count_of(hidden, 'earlier run')} in the same files: --all shows them, too.")
    for note in opened.notes:
        console.print(note, style="dim", soft_wrap=True)
