"""OTLP over gRPC: one call, and its result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.export.acceptance import Reply
from akka_otel_callbacks.common.export.otlp.credentials import from_entry_point
from akka_otel_callbacks.common.export.otlp.settings import OtlpSettings
from akka_otel_callbacks.common.export.redaction import redact_text
from akka_otel_callbacks.common.text import one_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

LARGEST_REPLY = 64 * 1024
VERBOSITY = "GRPC_VERBOSITY"


@contextmanager
def _quiet_core() -> Iterator[None]:
    """Has gRPC's core write less to stderr, where it prints a line for every attempt at a server without TLS. It reads
    the variable when it is loaded or first used. The variable is then taken away, because every child would inherit
    it."""
    if os.environ.get(VERBOSITY):
        yield
        return
    os.environ[VERBOSITY] = "NONE"
    try:
        yield
    finally:
        os.environ.pop(VERBOSITY, None)


with _quiet_core():
    import grpc
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

STUBS: dict[str, Any] = {"METRICS": MetricsServiceStub, "TRACES": TraceServiceStub, "LOGS": LogsServiceStub}
COMPRESSIONS = {"none": None, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
WORTH_ANOTHER_TRY = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
)


class GrpcSender:
    """Calls one server."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._settings = settings
        self._metadata = tuple(settings.headers.items())
        self._credentials = _credentials(settings) if settings.secure else None
        self._channel: grpc.Channel | None = None

    def send(self, message: Message, reply_type: type[Message], timeout_s: float, compression: str) -> Reply:
        try:
            response = self._export()(
                message, timeout=timeout_s, metadata=self._metadata, compression=COMPRESSIONS[compression]
            )
            reply = Reply.to_accepted(response, None)
        except grpc.RpcError as error:
            reply = self._refused(error)
        except Exception as error:  # noqa: BLE001 - a channel that was closed meanwhile, a name that gRPC cannot take
            reply = Reply(False, one_line(f"{type(error).__name__}: {error}"), kind=type(error).__name__)
        return replace(reply, reason=redact_text(reply.reason, self._settings.environ))

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _refused(self, error: grpc.RpcError) -> Reply:
        code = error.code()
        if code is grpc.StatusCode.UNAVAILABLE:  # a channel waits ever longer before it connects anew
            self.close()
            self._channel = None
        details = one_line(error.details() or "")
        return Reply(
            False,
            f"{code.name}: {details}" if details else code.name,
            kind=code.name,
            retryable=code in WORTH_ANOTHER_TRY,
        )

    def _export(self) -> Any:
        with _quiet_core():
            self._channel = self._channel or self._open()
        return STUBS[self._settings.signal](self._channel).Export

    def _open(self) -> grpc.Channel:
        server = self._settings.endpoint
        options = [
            ("grpc.max_receive_message_length", LARGEST_REPLY),
            ("grpc.primary_user_agent", "akka-otel-callbacks"),
        ]
        if self._credentials is None:
            return grpc.insecure_channel(server, options)
        return grpc.secure_channel(server, self._credentials, options)


def _credentials(settings: OtlpSettings) -> grpc.ChannelCredentials:
    return from_entry_point(settings, grpc.ChannelCredentials) or grpc.ssl_channel_credentials(
        root_certificates=_read(settings.certificate),
        private_key=_read(settings.client_key),
        certificate_chain=_read(settings.client_certificate),
    )


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
