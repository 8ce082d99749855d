"""Where telemetry lies: the files behind a path, and the runs in a folder."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

METRICS = "metrics.jsonl"
OURS = re.compile(r"(metrics|traces|logs)(-.*)?\.jsonl(\.gz)?")
"""How the package's writers, and a Collector's file exporter that rotates such a file, name theirs."""
SOMEBODYS = re.compile(r".*\.jsonl?(\.gz)?")
BEGINNING = re.compile(rb'\s*\{\s*"resource(Metrics|Spans|Logs)"')
LOOK_BYTES = 200


def files(path: Path) -> list[Path]:
    """The files to read for a path, those written last at the end: the file itself, or those in the folder of a run. A
    run's `metrics.jsonl` stands for its folder. Empty where a folder has none.

    Raises:
        OSError: the path does not exist or cannot be looked at.
    """
    if not path.is_dir():
        path.stat()
        if path.name != METRICS or not path.is_file():
            return [path]
        path = path.parent
    ours = [file for file in path.iterdir() if OURS.fullmatch(file.name)]
    found = ours or [file for file in path.iterdir() if SOMEBODYS.fullmatch(file.name) and _begins_so(file)]
    return sorted(found, key=lambda file: (_written(file), file.name))


def runs(folder: Path) -> list[Path]:
    """The folders below one that have files of runs, the newest last."""
    found = [(max(map(_written, there)), child) for child in folder.iterdir() if (there := _of_run(child))]
    return [child for _, child in sorted(found)]


def _of_run(folder: Path) -> list[Path]:
    try:
        return [file for file in folder.iterdir() if OURS.fullmatch(file.name) and file.is_file()]
    except OSError:  # no folder, or nobody's business
        return []


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _begins_so(file: Path) -> bool:
    """Whether a file whose name says nothing begins as OTLP/JSON does: a folder may hold a data set, too."""
    try:
        if not file.is_file():
            return False
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return bool(BEGINNING.match(opened.read(LOOK_BYTES)))
    except (OSError, EOFError):
        return False
