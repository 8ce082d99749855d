"""The files by which a Prometheus finds the processes that it can scrape: `file_sd`, one file for each process.

A file goes with its process. A process that is killed leaves it behind, and whoever looks next removes it. The sign is
a lock that a live process holds on its file, and that ends with the process however it ends. A process ID would be no
sign, because a container has IDs of its own.
"""

from __future__ import annotations

import fnmatch
import json
import os
import socket
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from akka_otel_callbacks.common.export.json_lines import absolute
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import underscored
from akka_otel_callbacks.common.vocabulary import names

try:
    import fcntl
except ImportError:  # Windows: no lock, and so nobody can tell which process is gone
    fcntl = None  # type: ignore[assignment]

PATTERN = "targets-*.json"
"""A `file_sd` path may have one star, in its last part: so the processes of all runs write to one folder."""
LARGEST = 64 * 1024
"""The most bytes that are read of a file."""
META = "__meta_akka_otel_"
"""Prometheus drops what begins with `__meta_` after its relabelling. The run's labels stand on every series already; as
labels of the target they would push those aside, as `exported_…`."""
HOST, PID = f"{META}host", f"{META}pid"


def labels_of(resource: Mapping[str, Any]) -> dict[str, str]:
    """What the file says of a process beside its address. `instance` is that of OTLP: a port passes from run to run."""
    instance = resource.get(names.ATTR_SERVICE_INSTANCE_ID.name)
    promoted = {f"__meta_{underscored(a.name)}": resource.get(a.name) for a in names.PROMOTED_ATTRIBUTES}
    found = {"instance": instance, HOST: socket.gethostname(), PID: os.getpid(), **promoted}
    return {name: str(value) for name, value in found.items() if value is not None}


class AddressFile:
    """The file of this process, or of one of several endpoints in it.

    Args:
        folder: the folder for the file. It is made if it is missing.
        address: what a Prometheus is to scrape, `host:port`.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        name = f"{socket.gethostname()}-{os.getpid()}-{address.rpartition(':')[2]}"
        self.path = absolute(folder) / PATTERN.replace("*", name)
        self._file: BinaryIO | None = None
        self._writing: threading.Thread | None = None

    def publish(self, labels: Mapping[str, str]) -> None:
        """Writes the file on a thread of its own, because the training must not wait for a disk. One that cannot be
        written costs one line: the endpoint serves all the same."""
        group = {"targets": [self.address], "labels": {**labels}}
        self._writing = threading.Thread(
            target=guarded(self._write), args=(group,), name="akka-otel-address", daemon=True
        )
        self._writing.start()
        _published.add(self)

    def withdraw(self) -> None:
        """Removes the file. A second call does nothing. If the file cannot be removed, others still see that its
        process is gone."""
        _published.discard(self)
        if self._writing is not None:
            self._writing.join()
        if self._file is not None:
            with suppress(OSError):  # the endpoint has to end all the same
                self.path.unlink(missing_ok=True)
            self._let_go()

    def _write(self, group: Mapping[str, object]) -> None:
        draft = self.path.with_name(f".{self.path.name}.new")  # a Prometheus may read at any moment
        try:
            draft.parent.mkdir(parents=True, exist_ok=True)
            sweep(draft.parent)
            self._file = open(draft, "wb", buffering=0)  # noqa: SIM115 - its lock lasts as long as the process
            call_in_children(weakref.WeakMethod(self._let_go))
            _hold(self._file)
            self._file.write(json.dumps([group]).encode())
            os.replace(draft, self.path)
        except OSError as error:
            self._let_go()
            with suppress(OSError):
                draft.unlink()
            logger.warning(
                "%s cannot be written: %s. A Prometheus does not find http://%s/metrics by itself; set AKKA_OTEL_DIR "
                "to a folder that can be written",
                self.path,
                error.strerror or error,
                self.address,
            )

    def _let_go(self) -> None:
        """Ends the lock, unless a parent or a child holds the same one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


_published: weakref.WeakSet[AddressFile] = weakref.WeakSet()


def withdraw_all() -> None:
    """Removes the files of this process, which is about to be killed."""
    for file in list(_published):
        file.withdraw()


@dataclass(frozen=True, slots=True)
class Found:
    """A file of a process.

    Attributes:
        path: the file.
        address: what a Prometheus scrapes, `host:port`.
        labels: as `labels_of` gives them.
        alive: whether its process lives. None where that cannot be told from here.
    """

    path: Path
    address: str
    labels: Mapping[str, str]
    alive: bool | None


def look(folder: Path) -> list[Found]:
    """The address files in a folder, sorted by name. Any other file is left out.

    Raises:
        OSError: the folder cannot be read.
    """
    read = (_read(folder / name) for name in sorted(fnmatch.filter(os.listdir(folder), PATTERN)))
    return [found for found in read if found is not None]


def sweep(folder: Path) -> list[Found]:
    """Removes the files of processes that are gone, and returns them. The file of another user may have to stay.

    Raises:
        OSError: the folder cannot be read.
    """
    removed = []
    for found in look(folder):
        with suppress(OSError):
            if found.alive is False:
                found.path.unlink(missing_ok=True)
                removed.append(found)
    return removed


def _read(path: Path) -> Found | None:
    try:
        if not path.is_file():  # to open a pipe would wait for its writer
            return None
        with path.open("rb") as file:
            (group,) = json.loads(file.read(LARGEST))
            (address,), labels = group["targets"], {**group["labels"]}
            if labels.keys() >= {HOST, PID} and all(isinstance(text, str) for text in (address, *labels.values())):
                return Found(path, address, labels, _lives(file, labels[HOST]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    return None


def _hold(file: BinaryIO) -> None:
    """Locks the file for as long as it is open. Not every file system has locks. On one without, no process counts as
    gone."""
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lives(file: BinaryIO, host: str) -> bool | None:
    """Whether somebody holds the file. What looks free may be held on another machine: some file systems that machines
    share keep their locks apart."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # an exclusive one would need a file that is open for writing
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False if host == socket.gethostname() else None
