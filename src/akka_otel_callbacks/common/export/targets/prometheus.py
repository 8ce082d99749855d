"""An endpoint of the process that Prometheus scrapes."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from inspect import signature
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.export.signals import METRICS
from akka_otel_callbacks.common.export.targets.target import Answer, Asked, MetricOutput, Schedule, Target
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

HOST, PORT = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"
DEFAULT_HOST, DEFAULT_PORT = "localhost", 9464
LABELS = frozenset(attribute.name for attribute in names.PROMOTED_ATTRIBUTES)
"""What of the resource each series carries, so that a query of one run needs no join with `target_info`."""


@dataclass(frozen=True, slots=True)
class PrometheusTarget(Target):
    """Serves metrics over HTTP."""

    kind: ClassVar = "prometheus"
    signals: ClassVar = (METRICS,)
    extras: ClassVar = {"opentelemetry.exporter.prometheus": "prometheus"}
    is_here: ClassVar = True

    host: str
    port: int

    @classmethod
    def asked(cls, asked: Asked) -> PrometheusTarget:
        host = asked.environ.get(HOST, "").strip() or DEFAULT_HOST
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return cls(asked.reason, host, _port(asked.environ, asked.warnings))

    @property
    def where(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def open_metrics(self, schedule: Schedule) -> MetricOutput:
        from prometheus_client import CollectorRegistry, start_http_server

        reader_class = _reader_class()
        registry = CollectorRegistry()  # of our own: the process-wide one belongs to the user's program
        reader = reader_class(registry=registry, resource_attribute_filter=LABELS.__contains__)
        server, _ = start_http_server(self.port, addr=self.host, registry=registry)
        # A forked child that outlives the run would hold the port, and take scrapes that it has no thread to answer.
        call_in_children(weakref.WeakMethod(server.socket.close))

        def close() -> None:
            server.shutdown()
            server.server_close()

        return MetricOutput(self, schedule, scraped=reader, close=close)

    def probe(self, timeout_s: float) -> Answer:
        try:
            _reader_class()
        except ImportError as error:
            return Answer(False, self.why(error))
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, address = found[0]  # as prometheus_client chooses
            socket.create_server((address[0], self.port), family=family).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can look like this
            return Answer(False, f"the address cannot be opened: {getattr(error, 'strerror', None) or error}")
        return Answer(True, "the address is free")


def _reader_class() -> type[PrometheusMetricReader]:
    """OpenTelemetry's reader.

    Raises:
        ImportError: it is not installed, or is one that cannot put a run's labels on its series. Ray brings one of any
            age.
    """
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

    if "resource_attribute_filter" not in signature(PrometheusMetricReader).parameters:
        raise ImportError(
            f"opentelemetry-exporter-prometheus {version('opentelemetry-exporter-prometheus')} is too old; "
            "pip install 'akka-otel-callbacks[prometheus]'"
        )
    return PrometheusMetricReader


def _port(environ: Mapping[str, str], warnings: list[str]) -> int:
    text = environ.get(PORT, "").strip()
    if not text:
        return DEFAULT_PORT
    if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536:
        return int(text)
    warnings.append(f"{PORT}={one_line(text, 100)!r} is not a port; {DEFAULT_PORT} is used")
    return DEFAULT_PORT
