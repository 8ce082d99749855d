"""Reads a run's `logs*.jsonl`: the warnings and errors among its log records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from akka_otel_callbacks.cli import fields
from akka_otel_callbacks.cli.lines import MALFORMED, entries

WARNING = 13
"""OTLP's number of the least severity that is shown."""


class LogRecord(NamedTuple):
    time_ns: int
    severity: str
    body: str

    @property
    def when(self) -> str:
        """In UTC, to the second; empty for a time that no calendar has."""
        try:
            return f"{datetime.fromtimestamp(self.time_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S}"
        except (ValueError, OverflowError, OSError):
            return ""


def read(folder: Path, run: Mapping[str, str]) -> list[LogRecord]:
    """Them in the order of their times.

    Args:
        folder: where the run's files are.
        run: attributes that the resource of its records has.
    """
    found = []
    for resource, records in entries(folder, "logs"):
        if not run.items() <= dict(resource).items():
            continue
        for record in records:
            try:
                if fields.whole(record, "severityNumber") >= WARNING:
                    body = fields.text(fields.mapping(record, "body"), "stringValue")
                    time_ns = fields.whole(record, "timeUnixNano")
                    found.append(LogRecord(time_ns, fields.text(record, "severityText"), body))
            except MALFORMED:
                continue
    return sorted(found)
