"""The page of a run: one HTML file that opens anywhere, or a notebook's cell.

report("akka-otel/my-run").save("my-run.html")
report("akka-otel/one-run", "akka-otel/another")  # in a notebook: both in the same panels
"""

from __future__ import annotations

import html as escaping
import time
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path

from akka_otel_callbacks import reading
from akka_otel_callbacks.reading import Reader, files
from akka_otel_callbacks.report import html, page
from akka_otel_callbacks.report.history import History, histories

__all__ = ["Report", "report"]

HEIGHT_PX = 720
"""The height of the page in a notebook, where it scrolls."""


class Report:
    """A page. Notebooks show it as a cell's result, without a server and without a network.

    Attributes:
        runs: what it shows.
    """

    def __init__(self, runs: Sequence[History]) -> None:
        self.runs = runs

    @cached_property
    def html(self) -> str:
        """The whole file's text."""
        return html.written(page.page(self.runs, time.time_ns()))

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the page, and returns where.

        Raises:
            OSError: it cannot be written there.
        """
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        frame = f'<iframe srcdoc="{escaping.escape(self.html)}" title="Report of a run"'
        return f'{frame} style="width: 100%; height: {HEIGHT_PX}px; border: 0"></iframe>'


def report(*paths: str | PathLike[str]) -> Report:
    """The page of the newest run in each path.

    Args:
        paths: a run's folder, a folder of runs, or a file of OTLP/JSON lines. Several of them are compared.

    Raises:
        OSError: a path cannot be read.
        ValueError: a path has no run in it.
    """
    if not paths:
        raise ValueError("name at least one path: a run's folder, or a file of OTLP/JSON lines")
    return Report([_newest(Path(path)) for path in paths])


def _newest(path: Path) -> History:
    there = files(path) or [file for folder in reading.runs(path)[-1:] for file in files(folder)]
    found = histories(Reader(there).read())
    if not found:
        raise ValueError(f"{path} holds no telemetry of a run. A run writes its first figures after its first step")
    return found[-1]
