"""Opens the exporters that were selected; where one cannot be opened, the embedded file stands in for it."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.export.redaction import redact_text
from akka_otel_callbacks.common.export.selection import DEFAULT_INTERVAL_S, LOGS, METRICS, TRACES, Selection, Target
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import one_line

if TYPE_CHECKING:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

    from akka_otel_callbacks.common.logs.push import LogExporter

SPAN_LIMITS = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT")
FILE_PAUSE_S = 2.0
"""Between two exports of steps to the embedded files, whatever the interval."""


@dataclass(slots=True)
class MetricOutput:
    """An opened target: an exporter that is pushed to, or a reader that is scraped."""

    target: Target
    exporter: MetricExporter | None = None
    scraped: PrometheusMetricReader | None = None
    interval_s: float = DEFAULT_INTERVAL_S
    pause_s: float | None = None
    close: Callable[[], None] = field(default=lambda: None)


def load_sdk() -> None:
    """Where a limit of spans is wrong, the SDK's package for traces cannot be imported, which the encoders of both
    signals need. It is imported without that limit; whoever makes the provider of spans says what is wrong."""
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
    """Readers for the selected targets; where one cannot be opened, the embedded file stands in for it."""
    return _open(selection, METRICS, selection.metrics, lambda target: _open_metric(target, selection))


def open_traces(selection: Selection) -> list[SpanExporter]:
    return _open(selection, TRACES, selection.traces, _open_trace)


def open_logs(selection: Selection) -> list[tuple[LogExporter, Target]]:
    """Each with where it sends to."""
    return _open(selection, LOGS, selection.logs, lambda target: (_open_log(target), target))


def _open(
    selection: Selection, signal: str, targets: tuple[Target, ...], open_one: Callable[[Target], Any]
) -> list[Any]:
    opened = [_attempt(target, open_one, selection.files[signal]) for target in targets]
    if None in opened and all(target.kind != "file" for target in targets):
        failed = targets[opened.index(None)]
        stand_in = Target("file", f"stands in for {failed.kind}", path=selection.files[signal])
        opened.append(_attempt(stand_in, open_one, None))
    return [output for output in opened if output is not None]


def _attempt(target: Target, open_one: Callable[[Target], Any], instead: Path | None) -> Any:
    """What opens the target; None, with a warning, where nothing does."""
    try:
        return open_one(target)
    except Exception as error:  # noqa: BLE001 - exporters raise whatever their libraries raise
        see = f"; see {instead} instead" if instead is not None and instead != target.path else ""
        cause = redact_text(one_line(why(error)), os.environ)
        logger.warning("%s (%s) cannot be used: %s%s", target, target.reason, cause, see)
        return None


def why(error: Exception) -> str:
    """What a person reads of an exporter that cannot be opened, with the extra to install where that is the cause."""
    extras = {"grpc": "grpc", "opentelemetry.exporter.prometheus": "prometheus"}
    if isinstance(error, ModuleNotFoundError):
        extra = next((extra for module, extra in extras.items() if module.startswith(error.name or "?")), None)
        if extra:
            return f"{error}; pip install 'akka-otel-callbacks[{extra}]'"
    return f"{type(error).__name__}: {error}"


def _open_metric(target: Target, selection: Selection) -> MetricOutput:
    if target.kind == "prometheus":
        return _open_prometheus(target)
    pause_s = FILE_PAUSE_S if target.kind == "file" else selection.pause_s
    return MetricOutput(target, _metric_exporter(target), interval_s=selection.interval_s, pause_s=pause_s)


def _metric_exporter(target: Target) -> MetricExporter:
    if target.kind == "file":
        from akka_otel_callbacks.common.export.files import MetricFile

        assert target.path is not None
        return MetricFile(target.path)
    if target.kind == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        from akka_otel_callbacks.common.export.console import Stdout

        return ConsoleMetricExporter(out=Stdout())  # type: ignore[arg-type]
    from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics

    return OtlpMetrics(target)


def _open_prometheus(target: Target) -> MetricOutput:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()  # of our own: the process-wide one belongs to the user's program
    reader = PrometheusMetricReader(registry=registry)
    assert target.address is not None
    host, port = target.address
    server, _ = start_http_server(port, addr=host, registry=registry)
    _close_in_children(server.socket)

    def close() -> None:
        server.shutdown()
        server.server_close()

    return MetricOutput(target, scraped=reader, close=close)


def _close_in_children(listening: socket.socket) -> None:
    """A forked child that outlives the run would hold the port, and take scrapes that it has no thread to answer."""
    still_there = weakref.ref(listening)

    def in_child() -> None:
        if (found := still_there()) is not None:
            found.close()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)


def _open_trace(target: Target) -> SpanExporter:
    if target.kind == "file":
        from akka_otel_callbacks.common.export.files import SpanFile

        assert target.path is not None
        return SpanFile(target.path)
    if target.kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        from akka_otel_callbacks.common.export.console import Stdout

        return ConsoleSpanExporter(out=Stdout())  # type: ignore[arg-type]
    from akka_otel_callbacks.common.export.otlp.exporters import OtlpSpans

    return OtlpSpans(target)


def _open_log(target: Target) -> LogExporter:
    if target.kind == "file":
        from akka_otel_callbacks.common.export.files import LogFile

        assert target.path is not None
        return LogFile(target.path)
    if target.kind == "console":
        from akka_otel_callbacks.common.export.console import ConsoleLogs

        return ConsoleLogs()
    from akka_otel_callbacks.common.export.otlp.exporters import OtlpLogs

    return OtlpLogs(target)
