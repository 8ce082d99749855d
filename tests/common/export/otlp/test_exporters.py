"""The OTLP exporters against receivers of every kind: what is sent, how a reply is read, and what never shows."""

from __future__ import annotations

import gzip
import json
import shutil
import ssl
import subprocess
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
from opentelemetry import context
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from akka_otel_callbacks.common.export.acceptance import Reply
from akka_otel_callbacks.common.export.otlp import credentials
from akka_otel_callbacks.common.export.otlp.delivery import REQUESTS, Delivery
from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics, OtlpSpans
from akka_otel_callbacks.common.export.selection import select
from tests.common.scripts import run
from tests.support.batches import metrics_batch, spans_batch
from tests.support.otlp_sink import OtlpSink, otlp_sink, refusing, replying

SECRET = "s3cret-T0ken-0123"


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


def target_of(url: str, protocol: str = "http/protobuf", **variables: str) -> Any:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
        **{f"OTEL_EXPORTER_OTLP_{name}": value for name, value in variables.items()},
    }
    return select(environ, "run").metrics[0]


def reply_of(url: str, protocol: str = "http/protobuf", timeout_s: float = 3.0, **variables: str) -> Reply:
    delivery = Delivery(target_of(url, protocol, **variables))
    try:
        return delivery.once(ExportMetricsServiceRequest(), timeout_s)
    finally:
        delivery.close()


# -- what is sent


@pytest.mark.parametrize("request_type", REQUESTS.values(), ids=REQUESTS)
def test_no_request_is_a_span_of_a_program_that_instruments_its_client(
    request_type: Any, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenTelemetry's instrumentations of `requests`, `urllib3` and gRPC ask the context."""
    send, suppressed = requests.Session.send, []

    def instrumented(*args: Any, **kwargs: Any) -> Any:
        suppressed.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))
        return send(*args, **kwargs)

    monkeypatch.setattr(requests.Session, "send", instrumented)
    delivery = Delivery(target_of(sink.http))
    delivery(request_type())
    delivery.close()
    assert suppressed
    assert all(suppressed)
    assert context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY) is None


@pytest.mark.parametrize("compression", ["", "none", "gzip", "deflate"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_both_signals_arrive_with_their_headers(protocol: str, compression: str, sink: OtlpSink) -> None:
    url = sink.grpc if protocol == "grpc" else sink.http
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc,x-scope=team",
    }
    selection = select(environ, "run")
    points, spans, requests = len(sink.metrics()), len(sink.spans()), len(sink.requests)
    for exporter, batch in (
        (OtlpMetrics(selection.metrics[0]), metrics_batch()),
        (OtlpSpans(selection.traces[0]), spans_batch()),
    ):
        assert exporter.export(batch).name == "SUCCESS"
        assert exporter.force_flush()
        exporter.shutdown()
    assert len(sink.metrics()) == points + 1
    assert len(sink.spans()) == spans + 1
    for transport, _, headers in sink.requests[requests:]:
        assert transport == protocol.partition("/")[0]
        assert (headers["authorization"], headers["x-scope"]) == ("Bearer abc", "team")
        assert headers.get("content-encoding", "") == (
            "" if transport == "grpc" or compression == "none" else compression or "gzip"
        )


def test_a_user_in_the_url_authenticates(sink: OtlpSink) -> None:
    assert reply_of(sink.http.replace("//", "//me:pw@")).delivered
    assert sink.requests[-1][2]["authorization"] == "Basic bWU6cHc="


def test_a_given_header_is_not_replaced_by_netrc(
    sink: OtlpSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert reply_of(sink.http, HEADERS="authorization=Bearer abc").delivered
    assert sink.requests[-1][2]["authorization"] == "Bearer abc"
    assert reply_of(sink.http).delivered
    assert sink.requests[-1][2]["authorization"].startswith("Basic ")


def test_a_proxy_is_used_and_one_that_is_away_is_named(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def proxy(request: BaseHTTPRequestHandler) -> None:
        seen.append(request.path)
        answer(request, 200)

    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    with replying(proxy) as url:
        monkeypatch.setenv("http_proxy", url)
        assert reply_of("http://collector.invalid:4318").delivered
    assert seen == ["http://collector.invalid:4318/v1/metrics"]
    with refusing() as url:
        monkeypatch.setenv("http_proxy", url.replace("//", f"//me:{SECRET}@"))
        reply = reply_of("http://collector.invalid:4318")
    assert not reply.delivered
    assert "refused" in reply.reason
    assert SECRET not in reply.reason


@pytest.mark.parametrize(
    ("preference", "delta"),
    [("", []), ("delta", ["Counter", "Histogram", "ObservableCounter"]), ("LowMemory", ["Counter", "Histogram"])],
)
def test_the_temporality_that_the_sdk_s_own_exporter_would_have(
    preference: str, delta: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    if preference:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    ours = OtlpMetrics(target_of("http://localhost:1", METRICS_TEMPORALITY_PREFERENCE=preference))
    theirs = OTLPMetricExporter()._preferred_temporality
    found = ours._preferred_temporality
    assert sorted(kind.__name__ for kind, value in found.items() if value.name == "DELTA") == delta
    assert {kind: theirs[kind] for kind in found} == found


# -- TLS and credentials


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One for 127.0.0.1 that nobody trusts unless told to, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return {"ca": str(folder / "ca.pem"), "key": str(folder / "key.pem")}


@contextmanager
def over_tls(protocol: str, certificate: dict[str, str]) -> Iterator[str]:
    """The URL of an endpoint that wants its client's certificate, too."""
    if protocol == "grpc":
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

        with grpc_replying(lambda *_: ExportMetricsServiceResponse(), tls=certificate) as url:
            yield url
        return
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificate["ca"])
    context.load_cert_chain(certificate["ca"], certificate["key"])
    context.verify_mode = ssl.CERT_REQUIRED
    with replying(lambda request: answer(request, 200), context) as url:
        yield url


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_certificates(protocol: str, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", ssl.get_default_verify_paths().cafile or certificate["ca"])
    given = {
        "CERTIFICATE": certificate["ca"],
        "CLIENT_CERTIFICATE": certificate["ca"],
        "CLIENT_KEY": certificate["key"],
        "INSECURE": "true",
    }
    with over_tls(protocol, certificate) as url:
        assert reply_of(url, protocol, **given).delivered
        untrusted = reply_of(url, protocol, INSECURE="true")
        assert not untrusted.delivered
        assert "certificate" in untrusted.reason.lower()


class Provider:
    """An entry point that makes credentials."""

    def __init__(self, made: object) -> None:
        self._made = made

    def load(self) -> Callable[[], object]:
        return lambda: self._made


def test_credentials_of_another_package(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    import requests

    session = requests.Session()
    session.headers["x-supplied"] = "yes"
    monkeypatch.setattr(credentials, "entry_points", lambda **_: [Provider(session)])
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "theirs",
    }
    target = select(environ, "run").metrics[0]
    assert Delivery(target).once(ExportMetricsServiceRequest(), 5).delivered
    assert sink.requests[-1][2]["x-supplied"] == "yes"
    for found, said in (([], "'theirs' is installed"), ([Provider(3)], "makes no Session")):
        monkeypatch.setattr(credentials, "entry_points", lambda found=found, **_: found)
        with pytest.raises((LookupError, TypeError), match=said):
            Delivery(target)


# -- another try


def answer(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    request.send_response(status)
    for name, value in {"content-length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def first_answers(*statuses: int) -> Iterator[tuple[str, list[float]]]:
    """An endpoint that answers as told, with 0 hanging up, and 200 from then on; and when requests came."""
    left, times = list(statuses), []

    def reply(request: BaseHTTPRequestHandler) -> None:
        times.append(time.monotonic())
        status = left.pop(0) if left else 200
        if status:
            answer(request, status, **({"retry_after": "0"} if status == 429 else {}))
        request.close_connection = True

    with replying(reply) as url:
        yield url, times


@pytest.mark.parametrize(("statuses", "tries"), [((503,), 2), ((429, 429, 429), 4), ((0,), 2), ((502, 0), 3)])
def test_a_failure_that_passes_costs_another_try(
    statuses: tuple[int, ...], tries: int, log: pytest.LogCaptureFixture
) -> None:
    with first_answers(*statuses) as (url, times):
        exporter = OtlpMetrics(target_of(url, TIMEOUT="30"))
        assert exporter.export(metrics_batch()).name == "SUCCESS"
        exporter.shutdown()
    assert len(times) == tries
    assert [record for record in log.records if url in record.getMessage()] == []


def test_one_that_asks_for_no_pause_is_not_asked_for_ever() -> None:
    with first_answers(*[429] * 100) as (url, times):
        exporter = OtlpMetrics(target_of(url))
        assert exporter.export(metrics_batch()).name == "FAILURE"
        exporter.shutdown()
    assert len(times) == 6


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 415, 500, 501, 301])
def test_a_refusal_does_not(status: int) -> None:
    with first_answers(status) as (url, times):
        exporter = OtlpMetrics(target_of(url, COMPRESSION="none"))
        assert exporter.export(metrics_batch()).name == "FAILURE"
        exporter.shutdown()
    assert len(times) == 1


# -- replies


def mebibytes_used(action: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


BOMB = gzip.compress(b"\x1b[31mno " * (2**23 // 8) * 20, 9)
PACKED = {"gzip": BOMB, "deflate": zlib.compress(b"no " * 2**24, 9), "x-gzip, gzip": BOMB}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("status", [200, 400])
def test_a_bomb_is_not_unpacked(encoding: str, status: int) -> None:
    replies: list[Reply] = []

    def bomb(request: BaseHTTPRequestHandler) -> None:
        answer(request, status, PACKED[encoding], content_encoding=encoding)

    with replying(bomb) as url:
        assert mebibytes_used(lambda: replies.append(reply_of(url))) < 8
    assert replies[0].delivered == (status == 200)
    assert len(replies[0].reason) < 500


@pytest.mark.parametrize("chunked", [True, False])
def test_a_megabyte_of_coloured_words_is_one_short_line(chunked: bool) -> None:
    words = b"\x1b[1;31m\x1b]0;title\x07denied\r\nfor \x00good \xff\xe2\x80\xae" * 40_000

    def page(request: BaseHTTPRequestHandler) -> None:
        if not chunked:
            return answer(request, 403, words, content_type="text/html")
        request.protocol_version = "HTTP/1.1"
        request.send_response(403)
        request.send_header("transfer-encoding", "chunked")
        request.end_headers()
        for _ in range(50):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(words), words))
        return None

    with replying(page) as url:
        reply = reply_of(url)
    assert reply.reason.startswith("403 Forbidden: denied for good")
    assert len(reply.reason) < 400
    assert reply.reason.isprintable()


def test_a_login_page_is_no_delivery() -> None:
    page = b"\n<!DOCTYPE html><html><body>Please log in</body></html>"
    with replying(lambda request: answer(request, 200, page, content_type="text/html")) as url:
        reply = reply_of(url)
    assert not reply.delivered
    assert reply.reason.startswith("200 OK, but with a page")


def test_what_a_collector_says_in_protobuf_is_read() -> None:
    from google.rpc.status_pb2 import Status

    body = Status(code=3, message="no such tenant").SerializeToString()
    with replying(lambda request: answer(request, 400, body, content_type="application/x-protobuf")) as url:
        assert reply_of(url).reason == "400 Bad Request: no such tenant"


@pytest.mark.parametrize("status", [200, 500])
def test_a_body_that_never_ends_is_not_waited_for(status: int) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("content-length", "1000000")
        request.end_headers()
        for _ in range(300):
            request.wfile.write(b"x")
            time.sleep(0.1)

    with replying(drip) as url:
        begun = time.monotonic()
        reply = reply_of(url, timeout_s=0.5)
        assert time.monotonic() - begun < 15, "the endpoint drips for 30 s"
    assert reply.delivered == (status == 200)


def test_a_port_that_speaks_grpc_is_said_to(sink: OtlpSink) -> None:
    reply = reply_of(sink.grpc)
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in reply.reason


def test_a_body_that_stops_does_not_undo_the_delivery() -> None:
    def stall(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("content-length", "100")
        request.end_headers()
        request.wfile.write(b"\n")
        time.sleep(3)

    with replying(stall) as url:
        assert reply_of(url, timeout_s=0.5).delivered


NONSENSE = {
    "another protocol": lambda request: request.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "nothing": lambda request: None,
    "no status": lambda request: request.wfile.write(b"HTTP/1.1 banana\r\n\r\n"),
    "a wrong length": lambda request: answer(request, 400, b"short", content_length="50"),
    "a wrong encoding": lambda request: answer(request, 400, b"\x1f\x8bno", content_encoding="gzip"),
    "a wrong location": lambda request: answer(request, 302, location="http://[bad\x1b[31m"),
    "endless headers": lambda request: (
        [request.wfile.write(b"HTTP/1.1 200 OK\r\n")] + [request.wfile.write(b"x-%d: y\r\n" % n) for n in range(10_000)]
    ),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_no_delivery_and_one_line(nonsense: Callable[[Any], object]) -> None:
    with replying(nonsense) as url:
        reply = reply_of(url, timeout_s=1.0)
    assert not reply.delivered
    assert reply.reason.isprintable()
    assert 0 < len(reply.reason) < 400


@contextmanager
def grpc_replying(
    reply: Callable[[Any, Any], Any], compression: Any = None, tls: dict[str, str] | None = None
) -> Iterator[str]:
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            return reply(request, context)

    server = grpc.server(ThreadPoolExecutor(1), compression=compression)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    if tls is None:
        url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        chain, key = Path(tls["ca"]).read_bytes(), Path(tls["key"]).read_bytes()
        credentials = grpc.ssl_server_credentials([(key, chain)], chain, require_client_auth=True)
        url = f"https://127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield url
    finally:
        server.stop(grace=None)


@pytest.mark.parametrize("compression", ["NoCompression", "Gzip"])
def test_a_large_reply_over_grpc_is_refused(compression: str) -> None:
    import grpc
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    def large(*_: Any) -> Any:
        response = ExportMetricsServiceResponse()
        response.partial_success.error_message = "x" * 3_000_000
        return response

    with grpc_replying(large, getattr(grpc.Compression, compression)) as url:
        reply = reply_of(url, "grpc")
    assert not reply.delivered
    assert not reply.retryable
    assert len(reply.reason) < 400


def test_a_large_error_over_grpc_is_one_short_line() -> None:
    import grpc

    def denied(_: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "\x1b[31mdenied\r\nfor good " * 200)

    with grpc_replying(denied) as url:
        reply = reply_of(url, "grpc")
    assert reply.reason.startswith("PERMISSION_DENIED: denied for good")
    assert len(reply.reason) < 400
    assert reply.reason.isprintable()


# -- what never shows


TRAINING = """
import logging
telemetry = start()
telemetry.capture(Report(grpo_step(1)), step=True)
telemetry.flush(5)
telemetry.close()
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(
    "headers",
    [
        f"Authorization: Bearer {SECRET}",
        SECRET,
        f"{SECRET}==",
        f'"authorization={SECRET}"',
        f"authorization=Bearer%0A{SECRET}",
        f"authorization={SECRET}",
        f"x-{SECRET}",
    ],
)
def test_no_secret_in_any_output(protocol: str, headers: str, tmp_path: Path) -> None:
    """Of a training whose collector quotes every header it got."""
    quoted: list[str] = []

    def quote(request: BaseHTTPRequestHandler) -> None:
        quoted.append(str(request.headers))
        answer(request, 401, str(request.headers).encode())

    def quote_grpc(_: Any, context: Any) -> Any:
        import grpc

        quoted.append(str(context.invocation_metadata()))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, quoted[-1][:2000])

    with replying(quote) if protocol != "grpc" else grpc_replying(quote_grpc) as url:
        done = run(
            TRAINING,
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_EXPORTER_OTLP_HEADERS": headers,
                "OTEL_LOG_LEVEL": "debug",
            },
            tmp_path,
        )
    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr
    usable = headers == f"authorization={SECRET}"
    assert any(SECRET in each for each in quoted) == usable
    assert ("cannot be used as a header" in done.stderr) == (not usable)
    assert "Traceback" not in done.stderr


TLS = """
import importlib
telemetry = start()
telemetry.capture(Report(grpo_step(1)), step=True)
telemetry.flush(5)
telemetry.close()
print(json.dumps(os.environ.get("GRPC_VERBOSITY")))
"""


@pytest.mark.parametrize("asked", [None, "INFO"])
def test_grpc_s_core_is_silent_unless_it_is_asked(asked: str | None, sink: OtlpSink, tmp_path: Path) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": sink.grpc.replace("http:", "https:"),
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        **({"GRPC_VERBOSITY": asked} if asked else {}),
    }
    done = run(TLS, variables, tmp_path)
    assert json.loads(done.stdout) == asked, "the variable is not left to every child"
    foreign = [line for line in done.stderr.splitlines() if not line.startswith("akka-otel: ")]
    assert bool(foreign) == bool(asked), foreign
    assert "handshake" in done.stderr.lower()
