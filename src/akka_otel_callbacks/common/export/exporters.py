"""Opens the targets that were selected. If one cannot be opened, the embedded file stands in for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from akka_otel_callbacks.common.export.redaction import redact_text
from akka_otel_callbacks.common.export.selection import Selection
from akka_otel_callbacks.common.export.signals import LOGS, METRICS, TRACES
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.target import MetricOutput, Target
from akka_otel_callbacks.common.log import logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.logs.push import LogExporter

SPAN_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT")
OpenedT = TypeVar("OpenedT")


def load_sdk() -> None:
    """Imports the SDK's package for traces without any limit of spans that is wrong. With it the import would fail, and
    the encoders of both signals need the package. The code that makes the provider of spans says what is wrong."""
    wrong = [name for name in SPAN_LIMITS if not _is_a_limit(os.environ.get(name, ""))]
    held = {name: os.environ.pop(name) for name in wrong}
    try:
        if held:
            import opentelemetry.sdk.trace  # noqa: F401
    finally:
        os.environ.update(held)


def _is_a_limit(text: str) -> bool:
    return not text.strip() or text.strip().isdecimal()


def open_metrics(selection: Selection) -> list[MetricOutput]:
    """Opens the selected targets, and logs a line that says where the figures go."""
    outputs = _open(selection.metrics, selection.files[METRICS], lambda target: target.open_metrics(selection.schedule))
    _announce([output.target for output in outputs], selection.reason_none)
    return outputs


def open_traces(selection: Selection) -> list[SpanExporter]:
    return _open(selection.traces, selection.files[TRACES], lambda target: target.open_spans())


def open_logs(selection: Selection) -> list[tuple[LogExporter, Target]]:
    """Opens the targets of logs. Each exporter comes with the name of the place to which it sends."""
    return _open(selection.logs, selection.files[LOGS], lambda target: (target.open_logs(), target))


def _open(targets: Sequence[Target], file: Path, open_one: Callable[[Target], OpenedT]) -> list[OpenedT]:
    stand_in: FileTarget | None = None
    opened = []
    for target in targets:
        found = _attempt(target, open_one, f"; see {file} instead" if target.where != str(file) else "")
        if found is not None:
            opened.append(found)
        elif not any(isinstance(other, FileTarget) for other in targets):
            stand_in = stand_in or FileTarget(f"stands in for {target.kind}", file)
    if stand_in is not None and (found := _attempt(stand_in, open_one)) is not None:
        opened.append(found)
    return opened


def _attempt(target: Target, open_one: Callable[[Target], OpenedT], see: str = "") -> OpenedT | None:
    """The opened target. None, with a warning, if it cannot be opened."""
    try:
        return open_one(target)
    except Exception as error:  # noqa: BLE001 - exporters raise whatever their libraries raise
        cause = redact_text(target.why(error), os.environ)
        logger.warning("%s (%s) cannot be used: %s%s", target, target.reason, cause, see)
        return None


def _announce(targets: Sequence[Target], reason_none: str) -> None:
    if not targets:
        logger.info("no figures are exported: %s", reason_none)
    for target in targets:
        look = f"; {target.look}" if target.look else ""
        here = f" on {socket.gethostname()}" if target.is_here else ""
        logger.info("figures go to %s (%s)%s%s", target, target.reason, look, here)
