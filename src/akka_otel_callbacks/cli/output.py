"""How the commands speak: figures on stdout, complaints on stderr."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

import typer
from rich.console import Console

PIPE_WIDTH = 120
LONGEST = 200
"""The most characters that are shown of a foreign text."""
PLAIN = dict(zip("·–—≈…°✓✗▁▂▃▄▅▆▇█", "---~.'+x_.:-=+*#", strict=True))


def stdout() -> Console:
    """A console on what is stdout now, whatever redirects it later."""
    return console_on(sys.stdout)


def stderr() -> Console:
    """A console on what is stderr now, whatever redirects it later."""
    return console_on(sys.stderr)


def console_on(stream: TextIO | None) -> Console:
    """Lines are wide enough for a table where no terminal says how wide they may be. Nothing in a text is markup: names
    and values come from users. Nothing is printed on a closed stream."""
    stream = stream or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=_plain.__qualname__)
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def stop(message: str, *, code: int) -> typer.Exit:
    """Says why the command ends, and returns what to raise with the exit code: 2 for a wrong call, 1 for a failure."""
    stderr().print(printable(message, longest=len(message)), style="red", soft_wrap=True)
    return typer.Exit(code)


def printable(text: str, longest: int = LONGEST) -> str:
    """A foreign text in one line that no terminal takes for commands, cut where it is long. Its blanks stay, since it
    may be a path."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The text with a plain character in place of each one that the stream cannot write, such as an ASCII stream."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(PLAIN.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error(_plain.__qualname__, _plain)
