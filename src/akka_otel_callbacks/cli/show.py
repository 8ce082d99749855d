"""`akka-otel show`: the figures of a run from its embedded files."""

from __future__ import annotations

from pathlib import Path

from akka_otel_callbacks.cli import figures
from akka_otel_callbacks.cli.output import stdout, stop
from akka_otel_callbacks.cli.table import summary


def show(path: Path, *, every_session: bool = False) -> None:
    """Prints the figures of a run directory or of a `metrics.jsonl`. What cannot be shown ends with the reason: exit
    code 2 for a path that is no such place, 1 for a file that holds no telemetry."""
    file = _metrics_file(path)
    try:
        recording = figures.read(file)
    except OSError as error:
        raise stop(f"{file} cannot be read: {error.strerror}.", code=2) from error
    if recording.sessions:
        stdout().print(summary(recording, every_session=every_session))
        for other in figures.other_processes(file) if file.name == figures.FILE_NAME else ():
            stdout().print(f"Another process of the run: akka-otel show {other}", soft_wrap=True)
    elif recording.unreadable:
        raise stop(f"{file}: none of its {recording.lines} lines is an OTLP/JSON metrics export.", code=1)
    else:
        stdout().print(f"{file} holds no figures yet: a run writes its first ones after its first step.")


def _metrics_file(path: Path) -> Path:
    if path.is_file():
        return path
    file = path / figures.FILE_NAME
    if file.exists():
        return file
    if not path.exists():
        raise stop(f"{path} does not exist.", code=2)
    runs = sorted(path.glob(f"*/{figures.FILE_NAME}"), key=lambda run: run.stat().st_mtime)
    if runs:
        newest = runs[-1].parent
        raise stop(
            f"{path} holds {len(runs)} runs. Show one of them, such as the newest: akka-otel show {newest}", code=2
        )
    raise stop(f"{path} has no {figures.FILE_NAME}.", code=2)
