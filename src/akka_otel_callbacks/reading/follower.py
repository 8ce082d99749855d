"""Follows a run while it is written."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.ending import How
from akka_otel_callbacks.reading.places import files, runs
from akka_otel_callbacks.reading.reader import Reader
from akka_otel_callbacks.reading.run import Run


class Follower:
    """Follows a run's file or folder, or the newest run in a folder of runs, which may have none yet. It stays with the
    run that was the newest at the first look, so that nobody's view jumps when another run begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place: Path | None = None
        self.runs: list[Run] = []
        """What the files told at the last look, the newest last: the run, and its earlier attempts."""
        self.unreadable = ""
        """What is there and could not be read at the last look, with the reason. Empty where all could."""
        self._name: str | None = None
        self._reader = Reader()

    def look(self) -> Run | None:
        """The run with all that was written meanwhile, also by processes that came later. None before there is one."""
        try:
            if self.place is None:
                below = [self.path] if files(self.path) else runs(self.path)
                self.place = below[-1] if below else None
            self._reader.add(files(self.place) if self.place else ())
        except OSError as error:
            self.unreadable = _unreadable(self.path, error)
            return None
        found = self._reader.read(growing=True)
        sources = self._reader.sources.items()
        self.unreadable = next(filter(None, (_unreadable(path, source.error) for path, source in sources)), "")
        if self._name is None and found:
            self._name = max(found, key=lambda run: (run.is_training, run.newest_ns)).name
        self.runs = [run for run in found if run.name == self._name]
        return self.runs[-1] if self.runs else None


def _unreadable(path: Path, error: OSError | None) -> str:
    if error is None or isinstance(error, FileNotFoundError):  # not there yet, or not any more
        return ""
    return f"{path} cannot be read: {error.strerror}."


def is_over(run: Run) -> bool:
    """Whether nothing more is to be expected: its end is recorded, its process is gone from this machine, or it is a
    past run that was read from a log."""
    return run.ending.how is not How.UNKNOWN or is_gone(run) or run.is_replayed


SILENT_S = 300.0
"""A process exports every minute at least, so one that was not heard of for five is gone, or its host is."""


def seems_to_run(run: Run, now_ns: int) -> bool:
    """Whether it was heard of lately and no end is recorded."""
    return not is_over(run) and (now_ns - run.newest_ns) / 1e9 < SILENT_S


def is_gone(run: Run) -> bool:
    """Whether the process that trains ran on this machine and does not any more. False where that is not known."""
    pid = run.resource.get(names.ATTR_PROCESS_PID.name, "")
    if os.name != "posix" or not pid.isdecimal() or run.resource.get(names.ATTR_HOST_NAME.name) != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)  # asks whether it is there, and does nothing to it
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
