"""`akka-otel show`: the figures, spans and warnings of a run from its embedded files."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Group

from akka_otel_callbacks.cli import figures
from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.story import story
from akka_otel_callbacks.cli.table import summary


def show(path: Path, *, every_session: bool = False) -> None:
    """Prints the figures of a run directory or of a `metrics.jsonl`. What cannot be shown ends with the reason: exit
    code 2 for a path that is no such place, 1 for a file that holds no telemetry."""
    file = path
    try:
        file = _metrics_file(path)
        recording = figures.read(file)
        others = figures.other_processes(file) if file.name == figures.FILE_NAME else []
    except OSError as error:
        raise stop(f"{file} cannot be read: {error.strerror}.", code=2) from error
    if recording.sessions:
        stdout().print(summary(recording, every_session=every_session))
        for session in recording.sessions if every_session else recording.sessions[-1:]:
            stdout().print(Group(*story(file.parent, session.resource)), end="")
        for other in others:
            stdout().print(f"Another process of the run: akka-otel show {_quoted(other)}", soft_wrap=True)
    elif recording.lines and recording.unreadable == recording.lines:
        raise stop(f"{file}: none of its {recording.lines} lines is an OTLP/JSON metrics export.", code=1)
    else:
        name = printable(str(file), longest=len(str(file)))
        stdout().print(f"{name} holds no figures yet: a run writes its first ones after its first step.")


def _metrics_file(path: Path) -> Path:
    if not path.exists():
        raise stop(f"{path} does not exist.", code=2)
    if not path.is_dir():
        return path
    file = path / figures.FILE_NAME
    if file.exists():
        return file
    runs = sorted(path.glob(f"*/{figures.FILE_NAME}"), key=lambda run: run.stat().st_mtime)
    if runs:
        newest = _quoted(runs[-1].parent)
        raise stop(
            f"{path} holds {len(runs)} runs. Show one of them, such as the newest: akka-otel show {newest}", code=2
        )
    others = map(_quoted, figures.other_processes(file))
    hints = [f" It has another process's: akka-otel show {other}" for other in others]
    raise stop(f"{path} has no {figures.FILE_NAME}.{''.join(hints)}", code=2)


def _quoted(path: Path) -> str:
    """The path as a shell takes it."""
    return printable(shlex.quote(str(path)), longest=len(str(path)) + 2)
