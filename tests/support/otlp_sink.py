"""OTLP receivers on loopback for tests: real HTTP (protobuf, gzip) and real gRPC, and endpoints that misbehave."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.points import LogLine, Point, SpanRecord, log_lines_of, points_of, spans_of

DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda body: body,
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}


ANSWERS: Mapping[type, tuple[Any, str]] = {
    ExportMetricsServiceRequest: (ExportMetricsServiceResponse, "rejected_data_points"),
    ExportTraceServiceRequest: (ExportTraceServiceResponse, "rejected_spans"),
    ExportLogsServiceRequest: (ExportLogsServiceResponse, "rejected_log_records"),
}
"""To each request its response, and the field that says how much was not taken."""


class OtlpSink:
    """Keeps every export it receives, decoded, in order of arrival.

    Attributes:
        http: the base URL for `OTEL_EXPORTER_OTLP_ENDPOINT` with http/protobuf.
        grpc: the same for gRPC.
        status: the HTTP status to answer with. Anything but 200 refuses the export, on gRPC as INVALID_ARGUMENT where
            it is 400 and else as UNAVAILABLE, and keeps nothing; a test may change it while the sink runs.
        refused: how many exports were refused.
        cannot_unpack: the HTTP status for what is compressed, where it cannot unpack that; 0: it can. gRPC has a
            status of its own for it, and a server that cannot is made so.
        rejected: how many points or spans of each export it says it did not take, and why; None says nothing.
        largest: of how many bytes an export may be as it comes, and unpacked over gRPC; 0: of any.
        requests: (transport, path, headers in lower case) of every export kept.
    """

    def __init__(self, http: str, grpc: str, status: int = 200, cannot_unpack: int = 0, largest: int = 0) -> None:
        self.http, self.grpc, self.status = http, grpc, status
        self.cannot_unpack, self.largest = cannot_unpack, largest
        self.refused = 0
        self.rejected: tuple[int, str] | None = None
        self.requests: list[tuple[str, str, Mapping[str, str]]] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        self._traces: list[ExportTraceServiceRequest] = []
        self._logs: list[ExportLogsServiceRequest] = []
        self._lock = threading.Lock()

    # -- what a test reads

    def metrics(self) -> list[Point]:
        """Every data point received so far."""
        with self._lock:
            requests = list(self._metrics)
        return [point for index, request in enumerate(requests) for point in points_of(request.resource_metrics, index)]

    def spans(self) -> list[SpanRecord]:
        """Every span received so far."""
        with self._lock:
            requests = list(self._traces)
        return [span for request in requests for span in spans_of(request.resource_spans)]

    def logs(self) -> list[LogLine]:
        """Every log record received so far."""
        with self._lock:
            requests = list(self._logs)
        return [line for request in requests for line in log_lines_of(request.resource_logs)]

    def names(self) -> set[str]:
        """The names of all metrics received so far."""
        return {point.name for point in self.metrics()}

    def series(self, metric: Any, attributes: Mapping[Any, Any] | None = None) -> list[Point]:
        """The points of one metric in order of arrival; those that carry all of `attributes`, which may be objects of
        the registry as well as names."""
        name = _name(metric)
        wanted = {_name(key): value for key, value in (attributes or {}).items()}
        return [p for p in self.metrics() if p.name == name and wanted.items() <= p.attributes.items()]

    def latest(self, metric: Any, attributes: Mapping[Any, Any] | None = None) -> Point:
        """The newest point of one series; fails with what did arrive when there is none."""
        series = self.series(metric, attributes)
        assert series, f"no {_name(metric)} with {attributes or {}} among {sorted(self.names())}"
        return series[-1]

    def last_export(self) -> list[Point]:
        """The points of the newest export: what is not among them has ended."""
        points = self.metrics()
        return [point for point in points if point.export == points[-1].export]

    # -- what the servers call

    def response_to(self, request: Any) -> Any:
        """The message that answers an accepted export."""
        response_type, rejected_field = ANSWERS[type(request)]
        response = response_type()
        if self.rejected is not None:
            count, reason = self.rejected
            rejected = {rejected_field: count}
            response.partial_success.MergeFrom(type(response.partial_success)(error_message=reason, **rejected))
        return response

    def receive(self, transport: str, path: str, headers: Mapping[str, str], request: Any) -> bool:
        """Keep one decoded export; False where it is to be refused."""
        with self._lock:
            if self.status != 200:
                self.refused += 1
                return False
            self.requests.append((transport, path, headers))
            kept: dict[type, list[Any]] = {
                ExportMetricsServiceRequest: self._metrics,
                ExportTraceServiceRequest: self._traces,
                ExportLogsServiceRequest: self._logs,
            }
            kept[type(request)].append(request)
        return True


@contextmanager
def otlp_sink(status: int = 200, cannot_unpack: int = 0, largest: int = 0) -> Iterator[OtlpSink]:
    """A receiver on two free loopback ports, stopped at the end."""
    sink = OtlpSink("", "", status, cannot_unpack, largest)
    with _http_server(sink) as sink.http, _grpc_server(sink) as sink.grpc:
        yield sink


@contextmanager
def answering(status: int) -> Iterator[str]:
    """The URL of an endpoint that answers every request with `status`, such as 503."""
    with _http_server(OtlpSink("", "", status)) as url:
        yield url


@contextmanager
def replying(reply: Callable[[BaseHTTPRequestHandler], None], context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of an endpoint that reads each request and does as `reply` says, over TLS with a context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with suppress(OSError):  # the exporter has enough of it
                reply(self)

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler, context) as url:
        yield url


@contextmanager
def silent() -> Iterator[str]:
    """The URL of an endpoint that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:  # the kernel accepts for us, nobody reads
        yield _url(server.getsockname()[1])


@contextmanager
def refusing() -> Iterator[str]:
    """The URL of an endpoint that refuses connections: its port is taken, so that nobody else can, and not open."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield _url(taken.getsockname()[1])


def wait_until(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """The first true value of `condition`; fails when there is none within the time, which a busy machine may need."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not true within {timeout_s} s")


def _name(thing: Any) -> str:
    return getattr(thing, "name", thing)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@contextmanager
def _http_server(sink: OtlpSink) -> Iterator[str]:
    messages: dict[str, Any] = {
        "/v1/metrics": ExportMetricsServiceRequest,
        "/v1/traces": ExportTraceServiceRequest,
        "/v1/logs": ExportLogsServiceRequest,
    }

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path not in messages:
                return self._answer(404)
            if 0 < sink.largest < len(body):
                sink.refused += 1
                return self._answer(413)
            encoding = self.headers.get("content-encoding", "")
            if encoding and sink.cannot_unpack:
                sink.refused += 1
                return self._answer(sink.cannot_unpack)
            decode = DECODERS[encoding]
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = messages[self.path].FromString(decode(body))
            if sink.receive("http", self.path, headers, request):
                return self._answer(200, sink.response_to(request).SerializeToString())
            return self._answer(sink.status)

        def _answer(self, status: int, body: bytes = b"") -> None:
            with suppress(ConnectionError):  # the exporter may have given up
                self.send_response(status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield _url(server.server_port).replace("http:", "https:" if context else "http:")
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _grpc_server(sink: OtlpSink) -> Iterator[str]:
    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces

    def export(request: Any, context: grpc.ServicerContext) -> Any:
        if not sink.receive("grpc", type(request).__name__, dict(context.invocation_metadata()), request):
            code = grpc.StatusCode.INVALID_ARGUMENT if sink.status == 400 else grpc.StatusCode.UNAVAILABLE
            context.abort(code, "refused by the test")
        return sink.response_to(request)

    class Metrics(metrics.MetricsServiceServicer):
        def Export(self, request: Any, context: grpc.ServicerContext) -> ExportMetricsServiceResponse:
            return export(request, context)

    class Traces(traces.TraceServiceServicer):
        def Export(self, request: Any, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
            return export(request, context)

    class Logs(logs.LogsServiceServicer):
        def Export(self, request: Any, context: grpc.ServicerContext) -> ExportLogsServiceResponse:
            return export(request, context)

    options = [("grpc.compression_enabled_algorithms_bitset", 1)] if sink.cannot_unpack else []
    if sink.largest:
        options.append(("grpc.max_receive_message_length", sink.largest))
    server = grpc.server(ThreadPoolExecutor(2), options=options)
    metrics.add_MetricsServiceServicer_to_server(Metrics(), server)
    traces.add_TraceServiceServicer_to_server(Traces(), server)
    logs.add_LogsServiceServicer_to_server(Logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield _url(port)
    finally:
        server.stop(grace=None)
