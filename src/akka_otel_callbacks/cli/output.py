"""How the commands speak: figures on stdout, complaints on stderr."""

from __future__ import annotations

import sys
from typing import TextIO

import typer
from rich.console import Console

PIPE_WIDTH = 120


def stdout() -> Console:
    """A console on what is stdout now, whatever redirects it later."""
    return console_on(sys.stdout)


def stderr() -> Console:
    """A console on what is stderr now, whatever redirects it later."""
    return console_on(sys.stderr)


def console_on(stream: TextIO) -> Console:
    """Lines are wide enough for a table where no terminal says how wide they may be. Nothing in a text is markup: names
    and values come from users."""
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def stop(message: str, *, code: int) -> typer.Exit:
    """Says why the command ends, and returns what to raise with the exit code: 2 for a wrong call, 1 for a failure."""
    stderr().print(message, style="red", soft_wrap=True)
    return typer.Exit(code)
