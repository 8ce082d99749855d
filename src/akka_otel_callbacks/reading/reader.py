"""Reads telemetry from files, whoever wrote them: metrics, spans and log records, one OTLP/JSON document a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akka_otel_callbacks.reading import fields
from akka_otel_callbacks.reading.attributes import labels
from akka_otel_callbacks.reading.fields import MALFORMED
from akka_otel_callbacks.reading.lines import Lines, Progress
from akka_otel_callbacks.reading.points import Documents
from akka_otel_callbacks.reading.run import Run, Runs

METRICS, TRACES, LOGS = "resourceMetrics", "resourceSpans", "resourceLogs"
WITHIN = {TRACES: ("scopeSpans", "spans"), LOGS: ("scopeLogs", "logRecords")}


@dataclass(slots=True)
class Source:
    """What was read of one file.

    Attributes:
        documents: how many of each kind, by the name of the field that holds it.
        read_lines: lines that are OTLP/JSON documents.
        unreadable: lines that are none, such as one torn by a crash.
        error: why it could not be read.
    """

    lines: Lines
    documents: dict[str, int]
    read_lines: int = 0
    unreadable: int = 0
    error: OSError | None = None

    @property
    def path(self) -> Path:
        return self.lines.path


class Reader:
    """Reads files, and reads on in them where they grow."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self.sources: dict[Path, Source] = {}
        self._runs = Runs()
        self._documents = Documents()
        self._add: Mapping[str, Callable[[Any], None]] = {
            METRICS: self._runs.add_export,
            TRACES: self._runs.add_spans,
            LOGS: self._runs.add_records,
        }
        self.add(paths)

    def add(self, paths: Iterable[Path]) -> None:
        """Adds files, where they are new."""
        for path in paths:
            self.sources.setdefault(path, Source(Lines(path), dict.fromkeys((METRICS, *WITHIN), 0)))

    def read(self, progress: Progress = lambda _: None, *, growing: bool = False) -> list[Run]:
        """Reads what is new, and returns the runs that the files tell of, the newest last.

        Args:
            progress: is told how many bytes more were read.
            growing: whether somebody writes to the files. A last line without an end is then left for the next call.
        """
        for source in self.sources.values():
            source.error = None
            try:
                for line in source.lines.new(progress, growing=growing):
                    self._take(line, source)
            except OSError as error:
                source.error = error
        return self._runs.all()

    def _take(self, line: bytes, source: Source) -> None:
        """A line that is no document is left out as a whole."""
        try:
            document = json.loads(line)
            signals = [signal for signal in source.documents if isinstance(document, dict) and signal in document]
            read = [(signal, self._read(document, signal)) for signal in signals]
        except MALFORMED:
            read = []
        source.read_lines += bool(read)
        source.unreadable += not read
        for signal, found in read:
            source.documents[signal] += 1
            for content in found:
                self._add[signal](content)

    def _read(self, document: Mapping[str, Any], signal: str) -> list[Any]:
        """What each resource of the document has."""
        if not isinstance(document[signal], list):
            raise fields.Malformed(f"{signal} is no list")
        if signal == METRICS:
            return self._documents.exports(document)
        scopes, items = WITHIN[signal]
        return [
            (
                labels(fields.mapping(resource, "resource")),
                [item for scope in fields.mappings(resource, scopes) for item in fields.mappings(scope, items)],
            )
            for resource in fields.mappings(document, signal)
        ]
