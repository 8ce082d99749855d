"""OTLP over HTTP: one request, and what became of it.

Redirects are not followed: a header with a token would go to whatever host they name. A reply is read up to a size and
a time, and unpacked up to that size, because a proxy's error page, or an attack, may be of any.
"""

from __future__ import annotations

import gzip
import http.client
import re
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsPartialSuccess

from akka_otel_callbacks.common.export.acceptance import Reply
from akka_otel_callbacks.common.export.otlp.credentials import from_entry_point
from akka_otel_callbacks.common.export.otlp.settings import OtlpSettings
from akka_otel_callbacks.common.export.redaction import redact_text, redact_url
from akka_otel_callbacks.common.text import one_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

LARGEST_REPLY = 64 * 1024
CHUNK = 4096
COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": partial(gzip.compress, compresslevel=1, mtime=0),  # the sixth takes four times as long for 1 to 8 % less
    "deflate": zlib.compress,
}
PAGE = re.compile(rb"\s*<(!doctype\s+html|html)", re.IGNORECASE)
"""How a page begins. An ingress that wants somebody to log in answers with one, and a collector never does."""
WORTH_ANOTHER_TRY = (429, 502, 503, 504)


class HttpSender:
    """Posts to one endpoint."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._url = settings.endpoint
        self._headers = {
            "content-type": "application/x-protobuf",
            "accept-encoding": "identity",
            "user-agent": "akka-otel-callbacks",
            **settings.headers,
        }
        self._environ = settings.environ
        self._session = from_entry_point(settings, requests.Session) or requests.Session()
        if "authorization" in settings.headers:
            self._session.auth = _leave_alone
        self._verify: str | None = None
        if self._url.lower().startswith("https:"):
            self._verify = _readable(settings.certificate) or None
            certificate, key = _readable(settings.client_certificate), _readable(settings.client_key)
            self._session.cert = (certificate, key) if certificate and key else certificate or self._session.cert

    def send(self, message: Message, reply_type: type[Message], timeout_s: float, compression: str) -> Reply:
        deadline = time.monotonic() + timeout_s
        body, headers = message.SerializeToString(), dict(self._headers)
        if compress := COMPRESS.get(compression):
            body, headers["content-encoding"] = compress(body), compression
        try:
            with self._session.post(
                self._url,
                data=body,
                headers=headers,
                timeout=timeout_s,
                allow_redirects=False,
                stream=True,
                verify=self._verify,
            ) as response:
                reply = _judge(response, _read(response, deadline), reply_type)
        except (requests.ConnectionError, requests.Timeout) as error:
            reply = Reply(False, _innermost(error), kind="connection", retryable=True)
        except Exception as error:  # noqa: BLE001 - sessions, proxies and parsers raise whatever they raise
            reply = Reply(False, _innermost(error), kind=type(error).__name__)
        return replace(reply, reason=redact_text(reply.reason, self._environ))

    def close(self) -> None:
        self._session.close()


def _leave_alone(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leaves the user's `Authorization` header as it is. Without this, requests would replace it by the credentials
    that `.netrc` has for the host."""
    return request


def _readable(path: str) -> str:
    if path:
        with open(path, "rb"):
            pass
    return path


def _judge(response: requests.Response, body: bytes, reply_type: type[Message]) -> Reply:
    status = response.status_code
    if 200 <= status < 300 and not PAGE.match(body):
        return Reply.to_accepted(_parsed(body, reply_type), status)
    reason = f"{status} {one_line(response.reason or '', 60)}".strip()
    if PAGE.match(body) and status < 300:
        reason += ", but with a page for people, such as a login's"
    if location := response.headers.get("location"):
        reason += f", to {one_line(redact_url(location))}; redirects are not followed, set the endpoint to where it is"
    elif said := _said(response, body):
        reason += f": {said}"
    retry_after = response.headers.get("retry-after", "")
    return Reply(
        False,
        reason,
        kind=str(status),
        status=status,
        retryable=status in WORTH_ANOTHER_TRY,
        retry_after_s=float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None,
    )


def _read(response: requests.Response, deadline: float) -> bytes:
    """The beginning of the reply, unpacked."""
    raw = response.raw
    read = getattr(raw, "read1", None) or (lambda amount, **options: raw.read(1, **options))
    packed = b""
    with suppress(Exception):  # the status is there; of a body that breaks off the beginning is enough
        while len(packed) < LARGEST_REPLY and time.monotonic() < deadline:
            chunk = read(CHUNK, decode_content=False)
            if not chunk:
                break
            packed += chunk
    if response.headers.get("content-encoding", "").strip().lower() not in ("gzip", "deflate"):
        return packed
    try:
        return zlib.decompressobj(wbits=47).decompress(packed, LARGEST_REPLY)  # 47: gzip or zlib, whichever it is
    except zlib.error:
        return b""


def _said(response: requests.Response, body: bytes) -> str:
    """What the receiver says about a refusal. It is text, or a `google.rpc.Status`, whose message has the same place as
    that of a partial success."""
    kind = response.headers.get("content-type", "")
    if "protobuf" in kind:
        status: Any = _parsed(body, ExportMetricsPartialSuccess)
        return one_line(status.error_message) if status is not None else ""
    return one_line(body.decode(errors="replace"))


def _parsed(body: bytes, message_type: type[Message]) -> Message | None:
    try:
        return message_type.FromString(body)
    except Exception:  # noqa: BLE001 - protobuf's error has another home in each of its versions
        return None


def _innermost(error: BaseException) -> str:
    """The cause of a failed connection, which urllib3 and requests wrap in several layers of words."""
    seen = {id(error)}
    while True:
        inner = (
            error.__cause__
            or getattr(error, "reason", None)
            or next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        )
        if not isinstance(inner, BaseException) or id(inner) in seen:
            break
        seen.add(id(inner))
        error = inner
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return "it does not answer in HTTP; if its port speaks gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(str(said))
