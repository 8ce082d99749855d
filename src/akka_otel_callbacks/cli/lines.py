"""Reads the lines of an embedded file, without trusting them, and the parts that all three signals have."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from akka_otel_callbacks.cli import fields

LONGEST_LINE = 2**26
"""Bytes of a line that are read at most: no export of ours is nearly as long."""
Labels = tuple[tuple[str, str], ...]
MALFORMED = (ValueError, RecursionError)
"""What a line that is no OTLP document raises while it is read."""


def lines(path: Path) -> Iterator[bytes]:
    """The lines that are not blank. A longer one than any export is cut, and so it is no document.

    Raises:
        OSError: it is no file, or cannot be opened or read.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):  # reading it might wait for ever
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file")
    with path.open("rb") as file:
        yield from _lines(file)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(LONGEST_LINE):
        rest = line
        while len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE)
        if line.strip() or rest is not line:
            yield line


def entries(folder: Path, signal: str) -> Iterator[tuple[Labels, list[Mapping[str, Any]]]]:
    """The spans (`traces`) or the log records (`logs`) of all processes that wrote to a run's folder, by resource, a
    document at a time. What cannot be read is left out.

    Args:
        folder: the run's.
        signal: how the files' names begin.
    """
    resources, scopes, items = FIELDS[signal]
    for path in sorted(folder.glob(f"{signal}*.jsonl")):
        try:
            for line in lines(path):
                yield from _entries(line, resources, scopes, items)
        except OSError:
            continue


FIELDS = {
    "traces": ("resourceSpans", "scopeSpans", "spans"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords"),
}


def _entries(line: bytes, resources: str, scopes: str, items: str) -> list[tuple[Labels, list[Mapping[str, Any]]]]:
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            return []
        return [
            (
                labels(fields.mapping(resource, "resource")),
                [item for scope in fields.mappings(resource, scopes) for item in fields.mappings(scope, items)],
            )
            for resource in fields.mappings(document, resources)
        ]
    except MALFORMED:
        return []


def labels(holder: Mapping[str, Any]) -> Labels:
    """The attributes of anything, as text."""
    pairs = (
        (fields.text(pair, "key"), fields.mapping(pair, "value")) for pair in fields.mappings(holder, "attributes")
    )
    return tuple(sorted((key, ", ".join(map(str, value.values()))) for key, value in pairs))
