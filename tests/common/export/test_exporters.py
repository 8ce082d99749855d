"""Who exports: the environment's every choice, every wrong value, and what stands in where a choice cannot be had."""

from __future__ import annotations

import errno
import logging
import math
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.files import MetricFile, SpanFile
from akka_otel_callbacks.common.export.otlp.exporters import OtlpMetrics, OtlpSpans
from akka_otel_callbacks.common.export.otlp.settings import PROTOCOLS
from akka_otel_callbacks.common.export.selection import Selection, select
from akka_otel_callbacks.common.export.signals import METRICS, TRACES
from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget
from akka_otel_callbacks.common.export.targets.target import MetricOutput

ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
CERTIFICATE = "OTEL_EXPORTER_OTLP_CERTIFICATE"
METRICS_ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
FILES = (["file akka-otel/run/metrics.jsonl"], ["file akka-otel/run/traces.jsonl"])

CHOICES = {
    "nothing is said": ({}, *FILES),
    "empty is nothing": ({ENDPOINT: "", "OTEL_METRICS_EXPORTER": "", PROTOCOL: ""}, *FILES),
    "a folder at home": (
        {"AKKA_OTEL_DIR": "~/run7"},
        [f"file {Path.home()}/run7/metrics.jsonl"],
        [f"file {Path.home()}/run7/traces.jsonl"],
    ),
    "a folder": ({"AKKA_OTEL_DIR": "/var/run7"}, ["file /var/run7/metrics.jsonl"], ["file /var/run7/traces.jsonl"]),
    "disabled": ({"OTEL_SDK_DISABLED": " True ", ENDPOINT: "http://c:4318", "OTEL_METRICS_EXPORTER": "file"}, [], []),
    "not disabled": ({"OTEL_SDK_DISABLED": "1"}, *FILES),
    "an endpoint": (
        {ENDPOINT: "http://c:4318"},
        ["otlp http/protobuf http://c:4318/v1/metrics"],
        ["otlp http/protobuf http://c:4318/v1/traces"],
    ),
    "an endpoint with a path": (
        {ENDPOINT: "https://c/otlp/"},
        ["otlp http/protobuf https://c/otlp/v1/metrics"],
        ["otlp http/protobuf https://c/otlp/v1/traces"],
    ),
    "an endpoint over grpc": (
        {ENDPOINT: "http://c:4317", PROTOCOL: "grpc"},
        ["otlp grpc http://c:4317"],
        ["otlp grpc http://c:4317"],
    ),
    "an endpoint for metrics": ({METRICS_ENDPOINT: "http://c/m"}, ["otlp http/protobuf http://c/m"], []),
    "an endpoint for traces": ({TRACES_ENDPOINT: "http://c/t"}, [], ["otlp http/protobuf http://c/t"]),
    "a signal's endpoint before the general one": (
        {ENDPOINT: "http://c:4318", METRICS_ENDPOINT: "http://m"},
        ["otlp http/protobuf http://m"],
        ["otlp http/protobuf http://c:4318/v1/traces"],
    ),
    "a signal's protocol before the general one": (
        {ENDPOINT: "http://c:4317", PROTOCOL: "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "HTTP/Protobuf"},
        ["otlp grpc http://c:4317"],
        ["otlp http/protobuf http://c:4317/v1/traces"],
    ),
    "otlp without an endpoint": (
        {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
        },
        ["otlp grpc http://localhost:4317"],
        ["otlp http/protobuf http://localhost:4318/v1/traces"],
    ),
    "a named exporter before an endpoint": (
        {ENDPOINT: "http://c:4318", "OTEL_METRICS_EXPORTER": "console", "OTEL_TRACES_EXPORTER": "file"},
        ["console"],
        ["file akka-otel/run/traces.jsonl"],
    ),
    "several": (
        {"OTEL_METRICS_EXPORTER": " Console,,file , prometheus"},
        ["console", "file akka-otel/run/metrics.jsonl", "prometheus http://localhost:9464/metrics"],
        [],
    ),
    "one named twice": ({"OTEL_METRICS_EXPORTER": "console,console"}, ["console"], []),
    "none": ({"OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4318"}, [], []),
    "none for one signal": ({"OTEL_TRACES_EXPORTER": "none"}, [], []),
    "none for one signal, an endpoint for the other": (
        {"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4318"},
        ["otlp http/protobuf http://c:4318/v1/metrics"],
        [],
    ),
    "prometheus elsewhere": (
        {
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "0.0.0.0",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "65535",
        },
        ["prometheus http://0.0.0.0:65535/metrics"],
        [],
    ),
}

WRONG = {
    "an unknown exporter": ({"OTEL_METRICS_EXPORTER": "statsd"}, *FILES, "OTEL_METRICS_EXPORTER='statsd'"),
    "an unknown exporter beside a known one": (
        {"OTEL_METRICS_EXPORTER": "statsd,console"},
        ["console"],
        [],
        "'statsd' is not one of otlp, console, prometheus, file, none",
    ),
    "an unknown exporter beside an endpoint": (
        {"OTEL_TRACES_EXPORTER": "zipkin", ENDPOINT: "http://c:4317", PROTOCOL: "grpc"},
        ["otlp grpc http://c:4317"],
        ["otlp grpc http://c:4317"],
        "OTEL_TRACES_EXPORTER='zipkin'",
    ),
    "prometheus for traces": ({"OTEL_TRACES_EXPORTER": "prometheus"}, *FILES, "not one of otlp, console, file, none"),
    "a protocol that the SDK has not": (
        {METRICS_ENDPOINT: "http://c", PROTOCOL: "http/json"},
        ["otlp http/protobuf http://c"],
        [],
        "OTEL_EXPORTER_OTLP_PROTOCOL='http/json'",
    ),
    "a wrong protocol of the signal, a right general one": (
        {METRICS_ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "tcp", PROTOCOL: "grpc"},
        ["otlp grpc http://c"],
        [],
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL='tcp'",
    ),
    **{
        f"port {port[:9]!r}": (
            {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": port},
            ["prometheus http://localhost:9464/metrics"],
            [],
            "is not a port; 9464 is used",
        )
        for port in ("65536", "-1", "http", "94.64", "٩٤٦٤", "9" * 5000)
    },
    **{
        f"interval {interval!r}": ({"OTEL_METRIC_EXPORT_INTERVAL": interval}, *FILES, "60000 is used")
        for interval in ("0", "-1", "often", "nan", "inf", "1e400")
    },
}


def targets(selection: Selection) -> tuple[list[str], list[str]]:
    return [str(target) for target in selection.metrics], [str(target) for target in selection.traces]


@pytest.mark.parametrize(("environ", "metrics", "traces"), CHOICES.values(), ids=CHOICES.keys())
def test_choices(environ: Mapping[str, str], metrics: list[str], traces: list[str]) -> None:
    selection = select(environ, "run")
    assert targets(selection) == (metrics, traces)
    assert selection.warnings == ()
    assert all(target.reason for target in (*selection.metrics, *selection.traces))
    assert selection.reason_none


@pytest.mark.parametrize(("environ", "metrics", "traces", "warning"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_value_is_one_clear_warning_and_the_next_choice(
    environ: Mapping[str, str], metrics: list[str], traces: list[str], warning: str
) -> None:
    selection = select(environ, "run")
    assert targets(selection) == (metrics, traces)
    assert len(selection.warnings) == 1
    assert warning in selection.warnings[0]
    assert selection.schedule.interval_s == 60


@pytest.mark.parametrize(
    ("text", "seconds"), [("1000", 1.0), (" 2500 ", 2.5), ("0.5", 0.0005), ("", 60.0), (" ", 60.0)]
)
def test_the_interval_is_in_milliseconds(text: str, seconds: float) -> None:
    assert select({"OTEL_METRIC_EXPORT_INTERVAL": text}, "run").schedule.interval_s == seconds


def test_several_processes_of_a_run_write_files_of_their_own() -> None:
    selection = select({}, "run", writer="actor/0")
    assert targets(selection) == (
        ["file akka-otel/run/metrics-actor_0.jsonl"],
        ["file akka-otel/run/traces-actor_0.jsonl"],
    )


@given(run_id=st.text(), writer=st.text())
def test_no_id_leads_out_of_its_folder_or_is_too_long_for_a_file_system(run_id: str, writer: str) -> None:
    for path in select({}, run_id, writer).files.values():
        assert path.parent.parent == Path("akka-otel")
        for name in (path.parent.name, path.name):
            assert name not in ("", ".", "..")
            assert len(name.encode()) <= 255


def test_the_longest_name_is_one_that_a_file_system_takes(tmp_path: Path) -> None:
    (tmp_path / select({}, "运行" * 500).files[METRICS].parent).mkdir(parents=True)


VARIABLES = (
    "OTEL_SDK_DISABLED OTEL_METRICS_EXPORTER OTEL_TRACES_EXPORTER OTEL_METRIC_EXPORT_INTERVAL AKKA_OTEL_DIR "
    "OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT OTEL_EXPORTER_OTLP_TRACES_ENDPOINT "
    "OTEL_EXPORTER_OTLP_PROTOCOL OTEL_EXPORTER_OTLP_METRICS_PROTOCOL OTEL_EXPORTER_OTLP_TRACES_PROTOCOL "
    "OTEL_EXPORTER_PROMETHEUS_HOST OTEL_EXPORTER_PROMETHEUS_PORT"
).split()
WORDS = st.sampled_from(
    ["otlp", "prometheus", "file", "none", "grpc", "true", ",", " ", "/", ":", "http://c", "9", "-", "."]
)
VALUES = st.text() | st.lists(WORDS).map("".join)


@given(st.dictionaries(st.sampled_from(VARIABLES), VALUES))
def test_any_environment_is_a_selection(environ: dict[str, str]) -> None:
    selection = select(environ, "run")
    assert all(METRICS in target.signals for target in selection.metrics)
    assert all(TRACES in target.signals for target in selection.traces)
    for target in (*selection.metrics, *selection.traces):
        assert str(target).startswith(target.kind)
        assert not isinstance(target, OtlpTarget) or target.settings.protocol in PROTOCOLS
    assert 0 < selection.schedule.interval_s < math.inf
    assert all(warning.isprintable() for warning in selection.warnings), "one line each"
    assert targets(select(environ, "run")) == targets(selection)


# -- opening


@contextmanager
def opened(environ: Mapping[str, str]) -> Iterator[tuple[list[MetricOutput], list]]:
    selection = select(environ, "run")
    metrics, traces = exporters.open_metrics(selection), exporters.open_traces(selection)
    try:
        yield metrics, traces
    finally:
        for output in metrics:
            output.close()


def kinds(outputs: list[MetricOutput]) -> list[type]:
    return [type(output.exporter or output.scraped) for output in outputs]


@pytest.mark.parametrize(
    ("environ", "metrics", "traces"),
    [
        ({}, [MetricFile], [SpanFile]),
        ({"OTEL_SDK_DISABLED": "true"}, [], []),
        ({ENDPOINT: "http://localhost:1"}, [OtlpMetrics], [OtlpSpans]),
        ({ENDPOINT: "http://localhost:1", PROTOCOL: "grpc"}, [OtlpMetrics], [OtlpSpans]),
        (
            {"OTEL_METRICS_EXPORTER": "console,file", "OTEL_TRACES_EXPORTER": "file,console"},
            [ConsoleMetricExporter, MetricFile],
            [SpanFile, ConsoleSpanExporter],
        ),
        (
            {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "0"},
            [PrometheusMetricReader],
            [],
        ),
    ],
    ids=["files", "disabled", "http", "grpc", "lists", "prometheus"],
)
def test_what_is_selected_is_opened(
    environ: dict[str, str],
    metrics: list[type],
    traces: list[type],
    environment: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    with opened(environ) as (outputs, span_exporters):
        assert kinds(outputs) == metrics
        assert [type(exporter) for exporter in span_exporters] == traces
        assert {output.schedule.interval_s for output in outputs} <= {60.0}
        assert [output.schedule.pause_s for output in outputs] == [
            2.0 if kind is MetricFile else 10.0 for kind in metrics
        ]
    assert {record.levelname for record in log.records} == {"INFO"}


def stand_in_warning(log: pytest.LogCaptureFixture, *parts: str) -> None:
    warnings = [record.getMessage() for record in log.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, warnings
    for part in (*parts, "akka-otel/run/metrics.jsonl"):
        assert part in warnings[0]


@pytest.mark.parametrize(
    ("environ", "package", "extra"),
    [
        ({METRICS_ENDPOINT: "http://localhost:1", PROTOCOL: "grpc"}, "grpc", "grpc"),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "opentelemetry.exporter.prometheus", "prometheus"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    environ: dict[str, str],
    package: str,
    extra: str,
    environment: pytest.MonkeyPatch,
    log: pytest.LogCaptureFixture,
) -> None:
    environment.delitem(sys.modules, "akka_otel_callbacks.common.export.otlp.grpc", raising=False)
    environment.setitem(sys.modules, package, None)
    with opened(environ) as (outputs, _):
        assert kinds(outputs) == [MetricFile]
    stand_in_warning(log, package, f"pip install 'akka-otel-callbacks[{extra}]'")


def test_a_port_that_is_taken(environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        environ = {
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
            "OTEL_EXPORTER_PROMETHEUS_PORT": port,
        }
        with opened(environ) as (outputs, _):
            assert kinds(outputs) == [PrometheusMetricReader]
            taken = int(re.search(r":(\d+)/metrics", str(outputs[0].target)).group(1))
            assert taken not in (0, int(port))
    (line,) = [record.getMessage() for record in log.records]
    assert f"port {port} is in use" in line


def test_a_port_that_may_not_be_had_is_no_other_port(
    environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """A firewall, or a port below 1024: another one would be refused or found by nobody."""
    environment.setattr("socketserver.TCPServer.server_bind", _refuse)
    with opened({"OTEL_METRICS_EXPORTER": "prometheus"}) as (outputs, _):
        assert kinds(outputs) == [MetricFile]
    stand_in_warning(log, "prometheus http://localhost:9464/metrics", "Permission denied")


def _refuse(*_: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_certificate_that_cannot_be_read(environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    for protocol in PROTOCOLS:
        log.clear()
        environ = {METRICS_ENDPOINT: "https://localhost:1", PROTOCOL: protocol, f"{CERTIFICATE}": "/no/such/ca.pem"}
        with opened(environ) as (outputs, _):
            assert kinds(outputs) == [MetricFile]
        stand_in_warning(log, f"otlp {protocol} https://localhost:1", METRICS_ENDPOINT, "/no/such/ca.pem")


def test_one_file_stands_in_for_all_that_fail(environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    both = {"OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_EXPORTER_PROMETHEUS_HOST": "no.such.host.invalid"}
    both |= {METRICS_ENDPOINT: "https://localhost:1", CERTIFICATE: "/no/such/ca.pem"}
    with opened({**both, PROTOCOL: "grpc"}) as (outputs, _):
        assert kinds(outputs) == [MetricFile]
    assert [record.levelname for record in log.records] == ["WARNING", "WARNING", "INFO"]
    with opened({**both, "OTEL_METRICS_EXPORTER": "otlp,file"}) as (outputs, _):
        assert kinds(outputs) == [MetricFile]
