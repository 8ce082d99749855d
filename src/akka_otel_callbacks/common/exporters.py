"""Who exports: reads the standard environment variables and opens what they ask for.

`select` decides and has no side effect; `open_metrics` and `open_traces` build. A value that cannot be used costs one
clear warning and falls to the next choice, because a typo in an environment must not stop a training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.delivery import watched
from akka_otel_callbacks.common.jitter import take_own_jitter
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.redaction import redact_url

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.trace.export import SpanExporter

METRICS, TRACES = "METRICS", "TRACES"
PROTOCOLS = ("http/protobuf", "grpc")
KINDS = {METRICS: ("otlp", "console", "prometheus", "file", "none"), TRACES: ("otlp", "console", "file", "none")}
DEFAULT_ENDPOINT = {"http/protobuf": "http://localhost:4318", "grpc": "http://localhost:4317"}
DEFAULT_INTERVAL_S = 60.0
FILE_PAUSE_S = 2.0
"""The embedded files get every reported step, but no two exports closer than this."""


@dataclass(frozen=True, slots=True)
class Target:
    """One place that a signal goes to, and the reason why."""

    kind: str
    reason: str
    protocol: str | None = None
    endpoint: str | None = None
    path: Path | None = None

    def __str__(self) -> str:
        where = redact_url(self.endpoint) if self.endpoint else self.path or ""
        return f"{self.kind} {self.protocol or ''} {where}".replace("  ", " ").strip()


@dataclass(frozen=True, slots=True)
class Selection:
    """What the environment asks for. An empty tuple: the signal is not exported, for `reason_none`."""

    metrics: tuple[Target, ...]
    traces: tuple[Target, ...]
    interval_s: float
    files: Mapping[str, Path]
    """By signal, the embedded file, also where another target is chosen."""
    warnings: tuple[str, ...] = ()
    reason_none: str = ""


def select(environ: Mapping[str, str], run_id: str, writer: str = "") -> Selection:
    """Reads `OTEL_SDK_DISABLED`, `OTEL_{METRICS,TRACES}_EXPORTER`, the OTLP endpoint variables and
    `OTEL_EXPORTER_OTLP_PROTOCOL`, in this order; where none of them says anything, the embedded files in
    `AKKA_OTEL_DIR` (default `akka-otel/<run id>/`) take both signals.

    Args:
        environ: the process's environment.
        run_id: names the default folder.
        writer: where several processes of a run write, who this one is; it goes into the files' names.
    """
    directory = Path(environ.get("AKKA_OTEL_DIR") or Path("akka-otel") / _safe(run_id))
    files = {signal: directory / _file_name(signal.lower(), writer) for signal in (METRICS, TRACES)}
    warnings: list[str] = []
    interval_s = _interval_s(environ, warnings)
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Selection((), (), interval_s, files, reason_none="OTEL_SDK_DISABLED is true")
    asked = {signal: _asked(environ, signal, files[signal], warnings) for signal in (METRICS, TRACES)}
    if all(targets is None for targets in asked.values()):
        reason = "no exporter and no OTLP endpoint is configured"
        asked = {signal: (Target("file", reason, path=files[signal]),) for signal in asked}
    return Selection(
        metrics=asked[METRICS] or (),
        traces=asked[TRACES] or (),
        interval_s=interval_s,
        files=files,
        warnings=tuple(warnings),
        reason_none="the environment asks for none or names a target for the other signal only",
    )


def _asked(environ: Mapping[str, str], signal: str, file: Path, warnings: list[str]) -> tuple[Target, ...] | None:
    """The signal's targets; None where the environment says nothing of it."""
    variable = f"OTEL_{signal}_EXPORTER"
    words = [word.strip().lower() for word in environ.get(variable, "").split(",")]
    kinds = [kind for kind in dict.fromkeys(words) if kind]  # one named twice would export everything twice
    known = [kind for kind in kinds if kind in KINDS[signal]]
    warnings.extend(
        f"{variable}={kind!r} is not one of {', '.join(KINDS[signal])}; ignored" for kind in kinds if kind not in known
    )
    if known:
        return tuple(
            _target(environ, signal, kind, file, f"{variable}={kind}", warnings) for kind in known if kind != "none"
        )
    for endpoint in (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        if environ.get(endpoint):
            return (_target(environ, signal, "otlp", file, f"{endpoint} is set", warnings),)
    return None


def _target(environ: Mapping[str, str], signal: str, kind: str, file: Path, reason: str, warnings: list[str]) -> Target:
    if kind == "file":
        return Target(kind, reason, path=file)
    if kind == "prometheus":
        return Target(
            kind, reason, endpoint=f"http://{_prometheus_host(environ)}:{_prometheus_port(environ, warnings)}/metrics"
        )
    if kind == "otlp":
        protocol = _protocol(environ, signal, warnings)
        return Target(kind, reason, protocol, _endpoint(environ, signal, protocol))
    return Target(kind, reason)


def _file_name(signal: str, writer: str) -> str:
    return f"{signal}-{_safe(writer)}.jsonl" if writer else f"{signal}.jsonl"


def _safe(text: str) -> str:
    """The text as a file's name: an ID may hold any character, a name may not leave its folder."""
    name = "".join(char if char.isalnum() or char in "-_." else "_" for char in text).lstrip(".")
    return name.encode()[:120].decode(errors="ignore") or "run"


def _protocol(environ: Mapping[str, str], signal: str, warnings: list[str]) -> str:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        value = environ.get(variable, "").strip().lower()
        if value in PROTOCOLS:
            return value
        if value:
            warnings.append(f"{variable}={value!r} is not one of {', '.join(PROTOCOLS)}; http/protobuf is used")
    return "http/protobuf"


def _endpoint(environ: Mapping[str, str], signal: str, protocol: str) -> str:
    """The URL as the SDK's exporter will read it: only the general HTTP endpoint gets the signal's path."""
    specific = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    general = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT[protocol]
    if specific or protocol == "grpc":
        return specific or general
    return f"{general.rstrip('/')}/v1/{signal.lower()}"


def _interval_s(environ: Mapping[str, str], warnings: list[str]) -> float:
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if not text:
        return DEFAULT_INTERVAL_S
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = 0.0
    if 0 < milliseconds < float("inf"):
        return milliseconds / 1000
    warnings.append(f"OTEL_METRIC_EXPORT_INTERVAL={text!r} is not a positive number of milliseconds; 60000 is used")
    return DEFAULT_INTERVAL_S


def _prometheus_host(environ: Mapping[str, str]) -> str:
    return environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "localhost"


def _prometheus_port(environ: Mapping[str, str], warnings: list[str]) -> int:
    text = environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or "9464"
    if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536:
        return int(text)
    warnings.append(f"OTEL_EXPORTER_PROMETHEUS_PORT={text!r} is not a port; 9464 is used")
    return 9464


@dataclass(slots=True)
class MetricOutput:
    """An opened reader. `interval_s` None: it is pulled, and nothing needs to call it."""

    target: Target
    reader: MetricReader
    interval_s: float | None
    every_step: bool = False
    close: Callable[[], None] = field(default=lambda: None)


def open_metrics(selection: Selection) -> list[MetricOutput]:
    """Readers for the selected targets; where one cannot be opened, the embedded file stands in for it."""
    return _open(selection, METRICS, selection.metrics, lambda target: _open_metric(target, selection.interval_s))


def open_traces(selection: Selection) -> list[SpanExporter]:
    return _open(selection, TRACES, selection.traces, _open_trace)


def _open(
    selection: Selection, signal: str, targets: tuple[Target, ...], open_one: Callable[[Target], Any]
) -> list[Any]:
    opened, failed = [], []
    for target in targets:
        try:
            opened.append(open_one(target))
        except Exception as error:  # noqa: BLE001 - exporters raise whatever their libraries raise
            failed.append(target)
            logger.warning(
                "%s (%s) cannot be used: %s; see %s instead",
                target,
                target.reason,
                _say(error),
                selection.files[signal],
            )
    if failed and all(target.kind != "file" for target in targets):
        stand_in = Target("file", f"stands in for {failed[0].kind}", path=selection.files[signal])
        opened.append(open_one(stand_in))
    take_own_jitter()
    return opened


def _say(error: Exception) -> str:
    extras = {"opentelemetry.exporter.otlp.proto.grpc": "grpc", "opentelemetry.exporter.prometheus": "prometheus"}
    if isinstance(error, ModuleNotFoundError):
        extra = next((extra for module, extra in extras.items() if module.startswith(error.name or "?")), None)
        if extra:
            return f"{error}; pip install 'akka-otel-callbacks[{extra}]'"
    return f"{type(error).__name__}: {error}"


def _open_metric(target: Target, interval_s: float) -> MetricOutput:
    if target.kind == "prometheus":
        return _open_prometheus(target)
    every_step = target.kind == "file"
    return MetricOutput(target, _pushing_reader(_metric_exporter(target)), interval_s, every_step)


def _metric_exporter(target: Target) -> MetricExporter:
    if target.kind == "file":
        from akka_otel_callbacks.common.files import MetricFile

        assert target.path is not None
        return MetricFile(target.path)
    if target.kind == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter()
    if target.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return watched(GrpcExporter(), target)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

    return watched(HttpExporter(), target)


def _pushing_reader(exporter: MetricExporter) -> MetricReader:
    """A reader without a clock of its own: the SDK's would go on ticking in forked children and hold the exit."""
    import math

    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)


def _open_prometheus(target: Target) -> MetricOutput:
    from urllib.parse import urlsplit

    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()  # of our own: the process-wide one belongs to the user's program
    reader = PrometheusMetricReader(registry=registry)
    address = urlsplit(target.endpoint or "")
    server, _ = start_http_server(address.port or 0, addr=address.hostname or "localhost", registry=registry)

    def close() -> None:
        server.shutdown()
        server.server_close()

    return MetricOutput(target, reader, None, close=close)


def _open_trace(target: Target) -> SpanExporter:
    if target.kind == "file":
        from akka_otel_callbacks.common.files import SpanFile

        assert target.path is not None
        return SpanFile(target.path)
    if target.kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if target.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return watched(GrpcExporter(), target)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

    return watched(HttpExporter(), target)
