"""Text files as people keep them: compressed or not, in any of Unicode's encodings, with any line ends, cut off."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

GZIP = b"\x1f\x8b"
ENCODINGS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""The encoding, by the mark at a file's beginning. PowerShell redirects into UTF-16."""
BEGINNING, BLOCK = 1 << 12, 1 << 20
LONGEST_LINE = 1 << 22
"""Characters of a line that are kept: no row is nearly as long."""


class Line(NamedTuple):
    text: str
    """The line without its line break."""
    is_whole: bool = True
    """Whether its end was there. A run that was killed may leave half a line."""


def text_of_beginning(path: Path) -> str:
    """The first characters of what a file holds.

    Raises:
        OSError: it is no file, or cannot be opened or read.
    """
    content = _beginning(path)
    return content.decode(_encoding(content), errors="replace")


def text_of(path: Path) -> str:
    """The whole text of a file, as far as it can be unpacked."""
    with _opened(path) as file:
        content = b"".join(_blocks(file, BLOCK))
    return content.decode(_encoding(content), errors="replace")


def lines(path: Path) -> Iterator[Line]:
    """The lines of a file of any size. A carriage return ends one, too: progress bars write nothing else."""
    rest = ""
    for chunk in _decoded(path):
        *whole, rest = (rest + chunk).split("\n")
        yield from (Line(line[:LONGEST_LINE]) for line in whole)
        rest = rest[:LONGEST_LINE]
    if rest:
        yield Line(rest, is_whole=False)


def _decoded(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(_encoding(_beginning(path)))(errors="replace")
    one_end = io.IncrementalNewlineDecoder(decoder, translate=True)
    with _opened(path) as file:
        for block in _blocks(file, BLOCK):
            yield one_end.decode(block)
    yield one_end.decode(b"", final=True)


def _opened(path: Path) -> BufferedIOBase:
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")


def _beginning(path: Path) -> bytes:
    with _opened(path) as file:
        return next(_blocks(file, BEGINNING), b"")


def _blocks(file: BufferedIOBase, size: int) -> Iterator[bytes]:
    """Up to where an archive was cut off."""
    with suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while block := file.read1(size):
            yield block


def _encoding(content: bytes) -> str:
    return next((encoding for mark, encoding in ENCODINGS.items() if content.startswith(mark)), "utf-8")
