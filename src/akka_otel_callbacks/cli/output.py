"""How the commands speak: figures on stdout, complaints on stderr."""

from __future__ import annotations

import sys
from typing import TextIO

import typer
from rich.console import Console
from rich.text import Text

PIPE_WIDTH = 120


def stdout() -> Console:
    """A console on what is stdout now, whatever redirects it later."""
    return _console(sys.stdout)


def stderr() -> Console:
    """A console on what is stderr now, whatever redirects it later."""
    return _console(sys.stderr)


def stop(message: str, *, code: int) -> typer.Exit:
    """Says why the command ends, and returns what to raise with the exit code: 2 for a wrong call, 1 for a failure."""
    stderr().print(Text(message, style="red"), soft_wrap=True)
    return typer.Exit(code)


def _console(stream: TextIO) -> Console:
    """Where no terminal says how wide it is, lines are wide enough for a table."""
    return Console(file=stream, width=None if stream.isatty() else PIPE_WIDTH, highlight=False)
