"""A file of JSON lines that several processes may append to, on a disk that may fill up or lose the file."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from akka_otel_callbacks.common.log import logger

try:
    import fcntl
except ImportError:  # Windows: no lock, and so nothing is ever cut
    fcntl = None  # type: ignore[assignment]

LOCK_ATTEMPTS, LOCK_PAUSE_S = 50, 0.005


class JsonLines:
    """The file is opened at the first line, on the thread that writes. Nobody's line is ever cut or continued."""

    def __init__(self, path: Path) -> None:
        self.path = absolute(path)
        self.failed = 0
        self._moved = False
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()

    def write(self, document: dict[str, Any]) -> bool:
        """Appends one line. A disk that refuses costs one warning; the lines before stay whole and the next line is
        tried again, since a full disk may be freed. A file that was removed or replaced is begun anew."""
        return self.write_text(json.dumps(document, separators=(",", ":")))

    def write_text(self, document: str) -> bool:
        """Appends a document that is one line of JSON already, like `write`."""
        line = document.encode() + b"\n"
        with self._lock:
            try:
                _append(self._current(), line)
            except OSError as error:
                self._complain(error)
                return False
        return True

    def close(self) -> None:
        with self._lock:
            self._let_go()
        if self.failed > 1:
            logger.warning("%s: %d exports in all could not be written", self.path, self.failed)

    def _current(self) -> BinaryIO:
        """Opens the file that the path names now."""
        if self._file is not None and not _is_at(self._file, self.path):
            self._let_go()
            if not self._moved:
                self._moved = True
                logger.warning("%s was removed or replaced while it was written; a new one is begun", self.path)
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab+", buffering=0)  # noqa: SIM115 - stays open for the run
            if stat.S_ISFIFO(os.fstat(self._file.fileno()).st_mode):  # it would fill up, and hold who writes
                self._let_go()
                raise OSError("it is a pipe")
        return self._file

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _complain(self, error: OSError) -> None:
        self.failed += 1
        if self.failed == 1:
            logger.warning(
                "cannot write telemetry to %s: %s. Training goes on without it; set AKKA_OTEL_DIR to a folder that can "
                "be written, or OTEL_EXPORTER_OTLP_ENDPOINT to a collector.",
                self.path,
                error,
            )


def absolute(path: Path) -> Path:
    """The path from the root, because a program may change its folder before the first line."""
    try:
        return path.absolute()
    except OSError as error:
        elsewhere = Path(tempfile.gettempdir()) / path
        logger.warning("the working folder is gone (%s); telemetry goes to %s", error, elsewhere)
        return elsewhere


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one at its path. It may have been removed, moved or replaced."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _append(file: BinaryIO, line: bytes) -> None:
    with _alone(file) as alone:
        if not _ends_whole(file):
            line = b"\n" + line
        written = file.write(line)
        if written == len(line):
            return
        end = file.tell()  # of what we wrote, wherever another writer has come to meanwhile
        if alone and os.fstat(file.fileno()).st_size == end:
            file.truncate(end - written)
    raise OSError(f"only {written} of {len(line)} bytes could be written; is the disk full?")


def _ends_whole(file: BinaryIO) -> bool:
    """Whether the next line can follow. A crash or a full disk may have left half a line, to which the next one would
    be added."""
    if file.seek(0, os.SEEK_END) == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


@contextmanager
def _alone(file: BinaryIO) -> Iterator[bool]:
    """Keeps the package's other writers out of the file. False if the lock could not be had in time: its holder may be
    stopped, and not every file system has locks."""
    held = fcntl is not None and _locked(file)
    try:
        yield held
    finally:
        if held:
            fcntl.flock(file, fcntl.LOCK_UN)


def _locked(file: BinaryIO) -> bool:
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        except OSError:
            return False
    return False
