"""The embedded files, the target where nothing is configured or a target cannot be used."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.export.signals import LOGS, METRICS, TRACES
from akka_otel_callbacks.common.export.targets.target import Answer, Asked, MetricOutput, Schedule, Target

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.logs.push import LogExporter

PAUSE_S = 2.0
"""Seconds between two exports of steps to a file, whatever the interval."""


@dataclass(frozen=True, slots=True)
class FileTarget(Target):
    """Takes OTLP/JSON lines."""

    kind: ClassVar = "file"
    signals: ClassVar = (METRICS, TRACES, LOGS)
    is_here: ClassVar = True

    path: Path

    @classmethod
    def asked(cls, asked: Asked) -> FileTarget:
        return cls(asked.reason, asked.file)

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def place(self) -> str:
        try:
            return str(self.path.absolute())
        except OSError:  # the working folder is gone
            return self.where

    @property
    def look(self) -> str:
        """With the whole path: a process of Ray's has a working folder of its own, of which the reader's shell knows
        nothing."""
        return f"look with `akka-otel show {shlex.quote(str(Path(self.place).parent))}`"

    def open_metrics(self, schedule: Schedule) -> MetricOutput:
        from akka_otel_callbacks.common.export.files import MetricFile

        return MetricOutput(self, replace(schedule, pause_s=PAUSE_S), MetricFile(self.path))

    def open_spans(self) -> SpanExporter:
        from akka_otel_callbacks.common.export.files import SpanFile

        return SpanFile(self.path)

    def open_logs(self) -> LogExporter:
        from akka_otel_callbacks.common.export.files import LogFile

        return LogFile(self.path)

    def probe(self, timeout_s: float) -> Answer:
        reason = why_not_written(self.path)
        return Answer(not reason, reason or "can be written")


def why_not_written(path: Path) -> str:
    """Why a file, with the folders above it, cannot be written. Empty if it can."""
    try:
        existing = next(place for place in (path, *path.absolute().parents) if place.exists())
        is_usable = existing.is_file() if existing == path else existing.is_dir()
    except OSError as error:  # a name that is too long, a working folder that is gone
        return f"{path}: {error.strerror or error}"
    if not is_usable:
        return f"{existing} is in the way"
    return "" if os.access(existing, os.W_OK) else f"{existing} cannot be written"
