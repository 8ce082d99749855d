"""The spans of a job: joined to what started it, under ids that no seed of the training makes equal."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from akka_otel_callbacks.common.export.exporters import SPAN_LIMITS
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.tracing.ids import UnseededIds
from akka_otel_callbacks.common.tracing.parent import parent_context
from akka_otel_callbacks.common.tracing.provider import private_provider
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.testing import TelemetryInMemory
from tests.common.scripts import run

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


def parent(**environ: str) -> trace.SpanContext:
    return trace.get_current_span(parent_context(environ)).get_span_context()


def test_the_parent_that_the_environment_names() -> None:
    found = parent(TRACEPARENT=PARENT, TRACESTATE="vendor=1,other=2")
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}") == (TRACE_ID, SPAN_ID)
    assert found.is_remote
    assert dict(found.trace_state) == {"vendor": "1", "other": "2"}


@pytest.mark.parametrize(
    "state", ["secret", "a=1,secret", "A=secret", "a=" + "secret" * 50, ",".join(["a=secret"] * 33)]
)
def test_a_malformed_state_is_left_out_and_not_shown(state: str, caplog: pytest.LogCaptureFixture) -> None:
    logger.addHandler(caplog.handler)
    try:
        found = parent(TRACEPARENT=PARENT, TRACESTATE=state)
    finally:
        logger.removeHandler(caplog.handler)
    assert found.is_valid
    assert not found.trace_state
    assert "TRACESTATE" in caplog.text
    assert "secret" not in caplog.text


@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{0,33}-[0-9a-f]{0,17}-[0-9a-f]{0,3}"), st.text())
def test_any_text_is_a_parent_that_it_names_or_none(traceparent: str, tracestate: str) -> None:
    found = parent(TRACEPARENT=traceparent, TRACESTATE=tracestate)
    assert found.is_valid == (
        found.trace_id != 0 and f"{found.trace_id:032x}" in traceparent and f"{found.span_id:016x}" in traceparent
    )


@pytest.mark.parametrize(
    "malformed",
    [
        "garbage",
        PARENT[:-1],
        PARENT.replace("4bf9", "xyz9"),
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-01",
    ],
)
def test_a_malformed_parent_is_none(malformed: str) -> None:
    assert not parent(TRACEPARENT=malformed).is_valid


@pytest.mark.parametrize("environ", [{}, {"TRACEPARENT": ""}, {"TRACESTATE": "a=1"}, {"traceparent": PARENT}])
def test_without_a_parent_the_trace_is_new(environ: dict[str, str]) -> None:
    assert not parent(**environ).is_valid


def test_a_span_that_happens_to_be_current_is_no_parent() -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("program").start_as_current_span("theirs"):
        assert not parent().is_valid


def test_ids_differ_under_one_seed() -> None:
    ids = []
    for _ in range(2):
        random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
        ids.append((UnseededIds().generate_trace_id(), UnseededIds().generate_span_id()))
    (trace_one, span_one), (trace_other, span_other) = ids
    assert trace_one != trace_other
    assert span_one != span_other
    assert 0 < trace_one < 2**128
    assert 0 < span_one < 2**64


def test_a_private_provider_exports_and_is_not_the_global_one() -> None:
    before, exporter = trace.get_tracer_provider(), InMemorySpanExporter()
    provider = private_provider(Resource({"service.name": "job"}), [exporter], {})
    provider.get_tracer("test").start_span("job").end()
    provider.shutdown()
    (span,) = exporter.get_finished_spans()
    assert span.resource.attributes == {"service.name": "job"}
    assert trace.get_tracer_provider() is before


@pytest.mark.parametrize(
    "make", [lambda: private_provider(Resource({}), [InMemorySpanExporter()], {}), TelemetryInMemory]
)
def test_the_global_meter_provider_is_not_looked_up(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be made where a variable names one, and then stand in the way of the program's own."""
    looked_up: list[object] = []
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", None)
    monkeypatch.setattr("opentelemetry.metrics._internal._load_provider", lambda *given: looked_up.append(given))
    monkeypatch.setenv("OTEL_PYTHON_METER_PROVIDER", "sdk_meter_provider")
    assert make() is not None
    assert not looked_up


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "99999"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "few"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "-1"),
    ],
)
def test_a_variable_that_the_sdk_refuses_is_one_warning(
    variable: str, value: str, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    environment.setenv(variable, value)
    assert private_provider(Resource({}), [ConsoleSpanExporter()], os.environ) is None
    assert [record.levelname for record in log.records] == ["WARNING"]
    assert "no spans are exported" in log.text


def test_without_exporters_there_is_no_provider() -> None:
    assert private_provider(Resource({}), [], {}) is None


BATCHES = "MAX_QUEUE_SIZE SCHEDULE_DELAY MAX_EXPORT_BATCH_SIZE EXPORT_TIMEOUT".split()


@pytest.mark.parametrize("value", ["", " ", "soon", "-1", "0", "1.5", "9" * 30])
def test_a_wrong_batch_variable_is_one_line_and_an_empty_one_is_not_set(
    value: str, log: pytest.LogCaptureFixture
) -> None:
    exporter = InMemorySpanExporter()
    provider = private_provider(Resource({}), [exporter], {f"OTEL_BSP_{name}": value for name in BATCHES})
    assert provider is not None
    provider.get_tracer("test").start_span("job").end()
    provider.shutdown()
    assert len(exporter.get_finished_spans()) == 1
    assert len(log.records) == (4 if value.strip() else 0)


WRONG_LIMIT = """
telemetry = start()
telemetry.capture(Report(grpo_step(1)), step=True)
telemetry.close()
"""


@pytest.mark.parametrize("value", ["many", "-1", "1.5"])
@pytest.mark.parametrize("variable", SPAN_LIMITS)
def test_a_wrong_limit_of_spans_costs_the_spans_and_no_metric(variable: str, value: str, tmp_path: Path) -> None:
    """The SDK's package for traces cannot even be imported then."""
    done = run(WRONG_LIMIT, {variable: value}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count(f"{variable} must be") == 1
    assert names.RL_STEP_REWARD.name in (tmp_path / "akka-otel/run/metrics.jsonl").read_text()
