"""The lines of a file, without trusting it: as a whole, or what was written since the last look."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

LONGEST_LINE = 2**26
"""Bytes of a line that are read at most: no export of ours is nearly as long."""
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
BROKEN_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)

Progress = Callable[[int], None]
"""Is told how many bytes more were read."""


class Lines:
    """The lines of one file, plain or gzip. Every look reads only what is new. A file that was replaced is read from
    its beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._file_id: tuple[int, int] | None = None

    def new(self, progress: Progress, *, growing: bool) -> Iterator[bytes]:
        """The lines since the last call that are not blank. A longer one than any export is cut, and so it is no
        document. What ends a file too early, such as a gzip file that was cut off, is one, too.

        Args:
            growing: leaves a last line that has no end yet for the next call.

        Raises:
            OSError: it is no file, or cannot be opened or read.
        """
        state = self.path.stat()
        if stat.S_ISDIR(state.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(state.st_mode):  # reading it might wait for ever
            raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file")
        if self._file_id != (state.st_dev, state.st_ino) or state.st_size < self._offset:
            self._file_id, self._offset = (state.st_dev, state.st_ino), 0
        if state.st_size == self._offset:
            return
        with self.path.open("rb") as file:
            start = file.read(4) if not self._offset else b""
            if start == ZSTD:
                raise OSError(errno.EINVAL, "it is packed with zstd; unpack it first")
            file.seek(self._offset)
            yield from self._gzipped(file, progress) if start[:2] == GZIP else self._plain(file, progress, growing)

    def _plain(self, file: BinaryIO, progress: Progress, growing: bool) -> Iterator[bytes]:
        for line in _lines(file):
            end = file.tell()
            if growing and not line.endswith(b"\n"):
                return
            progress(end - self._offset)
            self._offset = end
            if line.strip():
                yield line

    def _gzipped(self, file: BinaryIO, progress: Progress) -> Iterator[bytes]:
        """The lines of a packed file. It is read as a whole, because a file that still grows is not packed."""
        try:
            for line in _lines(cast(BinaryIO, gzip.GzipFile(fileobj=file))):
                end = file.tell()
                progress(end - self._offset)
                self._offset = end
                if line.strip():
                    yield line
        except BROKEN_GZIP:
            yield b"cut off"
        self._offset = os.fstat(file.fileno()).st_size


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE):
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE)
        yield line if rest is line else b"too long\n"
