"""Whether a target can be used: what `doctor` finds out before a training does."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from akka_otel_callbacks.common.exporters import METRICS, Target, _metric_exporter, _open_trace

PATIENCE_S = 2.0
EXPORTERS = "opentelemetry.exporter"
ExporterT = TypeVar("ExporterT")
REASONS = (
    re.compile(r"\[Errno -?\d+\] (?P<why>[^\"')\]]+)"),
    re.compile(r"code: (?P<why>\d+, reason: .*)", re.DOTALL),
    re.compile(r"(?:Error|error) details: (?P<why>.*)", re.DOTALL),
    re.compile(r"Transient error (?P<why>.*?) encountered", re.DOTALL),
)
"""Where the exporters' log lines say why an export failed."""


@dataclass(slots=True)
class Answer:
    """What became of a probe. `ok` is None where there is nothing to find out."""

    ok: bool | None
    text: str = ""


@dataclass(slots=True)
class _Export:
    """An empty export on a thread of its own, which may hang for as long as it likes."""

    thread: threading.Thread
    accepted: bool = False
    messages: list[str] = field(default_factory=list)


def probe(targets: Iterable[tuple[str, Target]]) -> list[Answer]:
    """Tries all targets at once, each for at most `PATIENCE_S` seconds. An OTLP endpoint is sent an empty export by the
    exporter that a training would use, so that protocol, headers and certificates are tried with it."""
    log = _ExporterLog()
    # It stays: an exporter that still hangs when the command ends would otherwise complain on the screen.
    logging.getLogger(EXPORTERS).addHandler(log)
    waiting = [_begin(signal, target, log) for signal, target in targets]
    deadline = time.monotonic() + PATIENCE_S
    return [finish(deadline) for finish in waiting]


def _begin(signal: str, target: Target, log: _ExporterLog) -> Callable[[float], Answer]:
    """Starts a probe; the returned function waits for its answer until a deadline."""
    if target.kind == "otlp":
        return _begin_export(signal, target, log)
    if target.kind == "prometheus":
        return lambda _: _port_is_free(target.endpoint or "")
    if target.path is not None:
        path = target.path
        return lambda _: _can_be_written(path)
    return lambda _: Answer(None)


def _begin_export(signal: str, target: Target, log: _ExporterLog) -> Callable[[float], Answer]:
    try:
        send = _sender(signal, target)
    except Exception as error:  # noqa: BLE001 - exporters raise whatever their libraries raise
        failure = Answer(False, f"{type(error).__name__}: {error}")
        return lambda _: failure

    def run() -> None:
        try:
            export.accepted = send()
        except Exception as error:  # noqa: BLE001
            export.messages.append(f"{type(error).__name__}: {error}")

    export = _Export(threading.Thread(target=run, daemon=True))
    log.listen_to(export)
    export.thread.start()

    def finish(deadline: float) -> Answer:
        export.thread.join(max(deadline - time.monotonic(), 0))
        if export.accepted:
            return Answer(True, "answers, and accepted an empty export")
        return Answer(False, _why(export.messages))

    return finish


def _sender(signal: str, target: Target) -> Callable[[], bool]:
    """Opens the exporter; calling the result sends an empty export and tells whether it was accepted."""
    if signal == METRICS:
        from opentelemetry.sdk.metrics.export import MetricsData

        metrics, no_metrics = _unwatched(_metric_exporter(target)), MetricsData(resource_metrics=[])
        return lambda: metrics.export(no_metrics).name == "SUCCESS"
    spans = _unwatched(_open_trace(target))
    return lambda: spans.export(()).name == "SUCCESS"


def _unwatched(exporter: ExporterT) -> ExporterT:
    """The exporter without the watch that reports failures to a training's log: here the answer is the report."""
    vars(exporter).pop("export", None)
    return exporter


def _why(messages: list[str]) -> str:
    if not messages:
        return f"no answer within {PATIENCE_S:.0f} s"
    first = messages[0]
    found = next((match for pattern in REASONS if (match := pattern.search(first))), None)
    return (found["why"] if found else first).strip()


class _ExporterLog(logging.Handler):
    """Collects what the exporters log, by the thread that runs them."""

    def __init__(self) -> None:
        super().__init__()
        self._exports: list[_Export] = []

    def listen_to(self, export: _Export) -> None:
        self._exports.append(export)
        for name, logger in logging.root.manager.loggerDict.items():
            if name.startswith(EXPORTERS) and isinstance(logger, logging.Logger):
                logger.filters.clear()  # they drop what the second exporter says in the words of the first

    def emit(self, record: logging.LogRecord) -> None:
        for export in self._exports:
            if record.thread == export.thread.ident:
                export.messages.append(record.getMessage())


def _port_is_free(endpoint: str) -> Answer:
    address = urlsplit(endpoint)
    try:
        socket.create_server((address.hostname or "localhost", address.port or 0)).close()
    except OSError as error:
        return Answer(False, f"the address cannot be opened: {error.strerror or error}")
    return Answer(True, "the address is free")


def _can_be_written(path: Path) -> Answer:
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if existing.is_dir() is (existing == path):  # the file is a folder, or a folder on the way to it is a file
        return Answer(False, f"{existing} is in the way")
    if not os.access(existing, os.W_OK):
        return Answer(False, f"{existing} cannot be written")
    return Answer(True, "can be written")
