"""The package's log lines as OTLP log records, at real receivers."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.logs.message import HAS_EVENTS, logs_request
from akka_otel_callbacks.common.logs.push import MOST_WAITING
from akka_otel_callbacks.common.logs.record import ATTRIBUTES, LONGEST, Record, about
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.scope import SCOPE
from tests.support.otlp_sink import OtlpSink, otlp_sink, refusing, wait_until

Start = Callable[..., Telemetry]


@pytest.fixture(params=["http", "grpc"])
def sink(request: pytest.FixtureRequest, environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    """A collector, which the environment names for everything, and asks for logs."""
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", getattr(opened, request.param))
        environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", {"http": "http/protobuf", "grpc": "grpc"}[request.param])
        environment.setenv("OTEL_LOGS_EXPORTER", "otlp")
        yield opened


def warnings(sink: OtlpSink) -> list[str]:
    return [line.body for line in sink.logs() if line.severity != "INFO"]


def test_a_line_arrives_soon_with_its_trace_and_its_run(sink: OtlpSink, start: Start) -> None:
    before_ns = time.time_ns()
    telemetry = start(run_id="run-7")
    logger.warning("%d of %s", 3, "them", extra=about(names.EVENT_GPU_XID, {names.ATTR_HW_ID.name: "GPU-1"}))
    wait_until(lambda: warnings(sink))
    telemetry.close()
    (line,) = (line for line in sink.logs() if line.severity != "INFO")
    (job,) = sink.spans()
    assert (line.body, line.severity, line.severity_number) == ("3 of them", "WARN", 13)
    assert line.attributes == {names.ATTR_HW_ID.name: "GPU-1"}
    assert (line.trace_id, line.span_id) == (job.trace_id, job.span_id)
    assert line.resource == job.resource
    assert line.resource[names.ATTR_RUN_ID.name] == "run-7"
    assert line.scope == SCOPE
    assert before_ns - 10**6 <= line.time_ns <= time.time_ns()


def test_an_xid_is_a_record_with_its_gpu_and_code(sink: OtlpSink, start: Start) -> None:
    nvml = FakeNvml(FakeGpu())
    gpus = GpuHealth(nvml.device_ids, backend=nvml, interval_s=0.05)
    telemetry = start()
    gpus.start()
    wait_until(lambda: gpus.points(names.GPU_XID_ERRORS))
    nvml.xid(79)
    wait_until(lambda: warnings(sink))
    telemetry.close()
    gpus.stop()
    (line,) = (line for line in sink.logs() if "XID" in line.body)
    (device,) = gpus.devices.reachable()
    assert line.attributes == {**device.attributes, names.ATTR_GPU_XID.name: 79}
    assert line.event == (names.EVENT_GPU_XID.name if HAS_EVENTS else "")
    assert line.span_id == sink.spans()[0].span_id


@pytest.mark.parametrize(
    ("error", "severity", "body"),
    [
        (ValueError("my secret"), "ERROR", "the training failed with ValueError"),
        (KeyboardInterrupt("my secret"), "WARN", "the training was stopped by KeyboardInterrupt"),
    ],
)
def test_a_failure_and_a_stop_are_told_by_their_class(
    error: BaseException, severity: str, body: str, sink: OtlpSink, start: Start
) -> None:
    start().close(error)
    (line,) = (line for line in sink.logs() if line.severity != "INFO")
    assert (line.severity, line.body) == (severity, body)
    assert line.attributes == {names.ATTR_ERROR_TYPE.name: type(error).__name__}


def test_a_failure_of_the_telemetry_is_told_without_its_message(
    sink: OtlpSink, start: Start, failures: dict[tuple[str, str], int]
) -> None:
    telemetry = start()
    guard.report("here", LookupError("my secret"))
    telemetry.close()
    (line,) = (line for line in sink.logs() if line.severity != "INFO")
    assert "telemetry failed in here" in line.body
    assert line.body.endswith("LookupError")
    assert line.attributes == {names.ATTR_ERROR_TYPE.name: "LookupError"}
    assert "secret" not in str(sink.logs())


# -- whether


@pytest.mark.parametrize(
    ("variables", "arrives"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{}"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{}", "OTEL_LOGS_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "{}", "OTEL_LOGS_EXPORTER": "otlp"}, True),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "{}/v1/logs"}, True),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "{}/v1/logs", "OTEL_LOGS_EXPORTER": " "}, True),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "{}/v1/logs", "OTEL_LOGS_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "{}/v1/logs", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_logs_go_out_where_somebody_asks_for_them(
    variables: dict[str, str], arrives: bool, start: Start, environment: pytest.MonkeyPatch
) -> None:
    with otlp_sink() as sink:
        for name, value in variables.items():
            environment.setenv(name, value.format(sink.http))
        telemetry = start()
        logger.warning("it is hot")
        telemetry.close()
        assert ("it is hot" in warnings(sink)) == arrives


def test_in_files_and_on_the_console(
    start: Start, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("OTEL_LOGS_EXPORTER", "file,console")
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    telemetry = start()
    context = telemetry.trace.variables()
    logger.warning("it is hot")
    telemetry.close()
    assert context == {}, "nothing is traced"
    written = Path("akka-otel/run/logs.jsonl").read_text()
    for text in (written, capsys.readouterr().out):
        documents = [json.loads(line) for line in text.splitlines() if line.startswith('{"resourceLogs"')]
        records = [
            record
            for document in documents
            for resource in document["resourceLogs"]
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]
        assert "it is hot" in [record["body"]["stringValue"] for record in records]
        assert "traceId" not in records[0]


def test_ids_in_a_file_are_hex(start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_LOGS_EXPORTER", "file")
    environment.setenv("TRACEPARENT", f"00-{'a' * 32}-{'b' * 16}-01")
    telemetry = start()
    logger.warning("it is hot")
    telemetry.close()
    written = Path("akka-otel/run/logs.jsonl").read_text()
    assert f'"traceId":"{"a" * 32}"' in written
    assert telemetry.trace.variables()["TRACEPARENT"].split("-")[2] in written


# -- a program's own logging


def test_a_program_s_handler_has_the_ids(start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry = start()
    logger.warning("it is hot")
    _, trace_id, span_id, _ = telemetry.trace.variables()["TRACEPARENT"].split("-")
    (line,) = (record for record in log.records if record.msg == "it is hot")
    assert (line.otelTraceID, line.otelSpanID) == (trace_id, span_id)  # type: ignore[attr-defined]
    telemetry.close()
    logger.warning("it is cold")
    assert not hasattr(log.records[-1], "otelTraceID"), "the job has ended"


# -- trouble


def test_what_could_not_be_sent_is_sent_later(sink: OtlpSink, start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    environment.setenv("OTEL_TRACES_EXPORTER", "none")
    environment.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    telemetry = start()
    sink.status = 503
    logger.warning("one")
    wait_until(lambda: sink.refused)
    sink.status = 200
    logger.warning("two")
    telemetry.close()
    assert [body for body in warnings(sink) if len(body) == 3] == ["one", "two"]


def test_what_is_lost_is_counted(start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    with refusing() as url:
        environment.setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"{url}/v1/logs")
        environment.setenv("OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "0.1")
        telemetry = start()
        before = len(log.records)
        for number in range(MOST_WAITING + 7):
            logger.warning("%d", number)
        telemetry.close()
        told = [record.getMessage() for record in log.records[before:] if "were not sent" in record.getMessage()]
    (line,) = told
    assert int(line.split()[0]) >= MOST_WAITING + 7
    assert url.removeprefix("http://") in line


def test_records_that_a_collector_rejects_are_not_sent_again(sink: OtlpSink, start: Start) -> None:
    sink.rejected = (1, "no room")
    telemetry = start()
    logger.warning("one")
    wait_until(lambda: "one" in warnings(sink))
    logger.warning("two")
    telemetry.close()
    assert warnings(sink).count("one") == 1


# -- any line


class Hostile:
    def __str__(self) -> str:
        return "\ud800 \x1b[31m\n" + "x" * 10_000


@given(st.text(), st.sampled_from([logging.DEBUG, 15, logging.INFO, logging.ERROR, 99, 1]), st.text())
def test_any_line_can_be_written(message: str, level: int, argument: str) -> None:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import INVALID_SPAN_CONTEXT

    line = logging.LogRecord("x", level, "f", 1, "%s %s", (message, argument), None)
    setattr(line, ATTRIBUTES, {argument: argument, "n": 2**70})
    record = Record.of(line)
    request = logs_request([record], Resource({}), INVALID_SPAN_CONTEXT, "scope")
    assert type(request).FromString(request.SerializeToString()) == request
    assert record.body.isprintable()


def test_a_hostile_argument_is_one_short_line() -> None:
    record = Record.of(logging.LogRecord("x", logging.INFO, "f", 1, "%s", (Hostile(),), None))
    assert record.body.isprintable()
    assert len(record.body) == LONGEST
