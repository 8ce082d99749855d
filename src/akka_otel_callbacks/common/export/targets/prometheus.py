"""An endpoint of the process that Prometheus scrapes."""

from __future__ import annotations

import errno
import socket
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from inspect import signature
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from akka_otel_callbacks.common.export.address_files import PATTERN, AddressFile, look
from akka_otel_callbacks.common.export.signals import METRICS
from akka_otel_callbacks.common.export.targets.file import why_not_written
from akka_otel_callbacks.common.export.targets.target import Answer, Asked, MetricOutput, Schedule, Target
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader

HOST, PORT = "OTEL_EXPORTER_PROMETHEUS_HOST", "OTEL_EXPORTER_PROMETHEUS_PORT"
DEFAULT_HOST, DEFAULT_PORT = "localhost", 9464
LABELS = frozenset(attribute.name for attribute in names.PROMOTED_ATTRIBUTES)
"""The resource attributes that each series carries, so that a query of one run needs no join with `target_info`."""


@dataclass(frozen=True, slots=True)
class PrometheusTarget(Target):
    """Serves metrics over HTTP."""

    kind: ClassVar = "prometheus"
    signals: ClassVar = (METRICS,)
    extras: ClassVar = {"opentelemetry.exporter.prometheus": "prometheus"}
    is_here: ClassVar = True

    host: str
    port: int
    """The port that is asked for; 0 stands for any free one. If another process has it, any free one is taken."""
    folder: Path
    """Where a Prometheus looks for the addresses of all processes."""

    @classmethod
    def asked(cls, asked: Asked) -> PrometheusTarget:
        host = asked.environ.get(HOST, "").strip() or DEFAULT_HOST
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return cls(asked.reason, host, _port(asked.environ, asked.warnings), asked.folder)

    @property
    def where(self) -> str:
        return f"http://{_bracketed(self.host)}:{self.port}/metrics"

    @property
    def address(self) -> str:
        """What a Prometheus is to scrape. A host that means all of them is reached by the machine's name."""
        return f"{_bracketed(socket.gethostname() if _is_any(self.host) else self.host)}:{self.port}"

    def open_metrics(self, schedule: Schedule) -> MetricOutput:
        from prometheus_client import CollectorRegistry, start_http_server

        reader_class = _reader_class()
        registry = CollectorRegistry()  # of our own: the process-wide one belongs to the user's program
        reader = reader_class(registry=registry, resource_attribute_filter=LABELS.__contains__)
        try:
            server, _ = start_http_server(self.port, addr=self.host, registry=registry)
            reason = self.reason
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            server, _ = start_http_server(0, addr=self.host, registry=registry)
            reason = f"{self.reason}, port {self.port} is in use"
        # A forked child that outlives the run would hold the port, and take scrapes that it has no thread to answer.
        call_in_children(weakref.WeakMethod(server.socket.close))
        target = replace(self, port=server.server_port, reason=reason)
        file = AddressFile(self.folder, target.address)

        def close() -> None:
            file.withdraw()
            server.shutdown()
            server.server_close()

        return MetricOutput(target, schedule, scraped=reader, address_file=file, close=close)

    def probe(self, timeout_s: float) -> Answer:
        try:
            _reader_class()
        except ImportError as error:
            return Answer(False, self.why(error))
        files = self.folder / PATTERN
        if reason := why_not_written(files):
            return Answer(False, f"no Prometheus finds the processes by {files}: {reason}")
        served = self._served()
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, *_, address = found[0]  # as prometheus_client chooses
            socket.create_server((address[0], self.port), family=family).close()
        except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can look like this
            if getattr(error, "errno", None) == errno.EADDRINUSE:
                return Answer(
                    False, f"port {self.port} is in use: a training takes another one, which stands in {files}{served}"
                )
            return Answer(False, f"the address cannot be opened: {getattr(error, 'strerror', None) or error}")
        return Answer(True, f"the address is free, and will stand in {files}{served}")

    def _served(self) -> str:
        """A line that lists the endpoints that are there already. Empty without any."""
        try:
            found = [each.address for each in look(self.folder) if each.alive is not False]
        except OSError:  # there is no such folder yet
            found = []
        return f"\nthere now: {', '.join(found)}" if found else ""


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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def _port(environ: Mapping[str, str], warnings: list[str]) -> int:
    text = environ.get(PORT, "").strip()
    if not text:
        return DEFAULT_PORT
    if text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536:
        return int(text)
    warnings.append(f"{PORT}={one_line(text, 100)!r} is not a port; {DEFAULT_PORT} is used")
    return DEFAULT_PORT
