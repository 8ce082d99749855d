"""An endpoint of the process that Prometheus scrapes."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from akka_otel_callbacks.common.export.signals import METRICS
from akka_otel_callbacks.common.export.targets.target import Answer, Asked, MetricOutput, Schedule, Target
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.text import one_line

HOST, PORT = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"
DEFAULT_HOST, DEFAULT_PORT = "localhost", 9464


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
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()  # of our own: the process-wide one belongs to the user's program
        reader = PrometheusMetricReader(registry=registry)
        server, _ = start_http_server(self.port, addr=self.host, registry=registry)
        # A forked child that outlives the run would hold the port, and take scrapes that it has no thread to answer.
        call_in_children(weakref.WeakMethod(server.socket.close))

        def close() -> None:
            server.shutdown()
            server.server_close()

        return MetricOutput(self, schedule, scraped=reader, close=close)

    def probe(self, timeout_s: float) -> Answer:
        try:
            import opentelemetry.exporter.prometheus  # noqa: F401
        except ImportError as error:
            return Answer(False, self.why(error))
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, address = found[0]  # as prometheus_client chooses
            socket.create_server((address[0], self.port), family=family).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can look like this
            return Answer(False, f"the address cannot be opened: {getattr(error, 'strerror', None) or error}")
        return Answer(True, "the address is free")


def _port(environ: Mapping[str, str], warnings: list[str]) -> int:
    text = environ.get(PORT, "").strip()
    if not text:
        return DEFAULT_PORT
    if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536:
        return int(text)
    warnings.append(f"{PORT}={one_line(text, 100)!r} is not a port; {DEFAULT_PORT} is used")
    return DEFAULT_PORT
