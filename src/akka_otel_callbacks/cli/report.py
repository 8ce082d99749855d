"""`akka-otel report`: one or more runs as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from akka_otel_callbacks.cli.open import open_runs, usual_folder
from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.table import count_of
from akka_otel_callbacks.report import Report
from akka_otel_callbacks.report.history import histories

FILE, OF_SEVERAL = "report.html", "akka-otel-report.html"


def report(paths: Sequence[Path], output: Path | None = None) -> None:
    """Writes the page and says where it is. What cannot be read ends with the reason, as `show` does.

    Args:
        paths: the newest run of each is shown. By default it is the folder that runs write to.
        output: the file; by default in the run's folder.
    """
    runs, places = [], []
    for path in paths or (usual_folder(),):
        opened = open_runs(path)
        if not opened.runs:
            raise stop(
                f"{opened.place} holds no figures yet: a run writes its first ones after its first step.", code=1
            )
        *others, run = histories(opened.runs)
        runs.append(run)
        places.append(opened.place)
        notes = (
            [f"{count_of(len(others), 'other run')} in the same files: show --all shows them, too."] if others else []
        )
        for note in [*opened.notes, *notes]:
            stdout().print(note, style="dim", soft_wrap=True)
    write(Report(runs), output or beside(places))


def write(made: Report, output: Path) -> None:
    try:
        made.save(output)
    except OSError as error:
        raise stop(f"{output} cannot be written: {error.strerror}. --output names another file.", code=2) from error
    stdout().print(f"The page is {printable(str(output), longest=len(str(output)))}", soft_wrap=True)


def beside(places: Sequence[Path]) -> Path:
    """Where the page goes by default: into the run's folder, or into the current one for several runs."""
    if len(places) > 1:
        return Path(OF_SEVERAL)
    return (places[0] if places[0].is_dir() else places[0].parent) / FILE
