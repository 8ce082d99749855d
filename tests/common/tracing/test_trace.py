"""The spans of a job until it ends, by whatever it ends."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink

Start = Callable[..., Telemetry]
UNFINISHED, ERROR = names.ATTR_SPAN_UNFINISHED.name, names.ATTR_ERROR_TYPE.name


class Spans:
    """A program's own provider, and what it exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def __getitem__(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self._exporter.get_finished_spans() if span.name == name)
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.mark.parametrize("error", [None, ValueError("secret"), KeyboardInterrupt("secret")])
def test_what_is_open_ends_with_the_job_and_says_so(
    error: BaseException | None, spans: Spans, start: Start, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    telemetry = start(tracer_provider=spans.provider)
    outer = telemetry.trace.begin("outer", 1)
    telemetry.trace.begin("inner", 2, outer)
    telemetry.trace.begin("done", 3).end(4)
    telemetry.close(error)
    job, inner = spans[names.SPAN_JOB.name], spans["inner"]
    for name in ("outer", "inner"):
        assert spans[name].attributes == {UNFINISHED: True}
        assert spans[name].status.status_code is StatusCode.UNSET, "nobody knows that it failed"
        assert job.start_time <= spans[name].end_time <= job.end_time
    assert inner.parent.span_id == spans["outer"].context.span_id
    assert (spans["done"].attributes, spans["done"].end_time) == ({}, 4)
    assert job.attributes == ({} if error is None else {ERROR: type(error).__name__})
    assert job.status.status_code is (StatusCode.UNSET if error is None else StatusCode.ERROR)
    assert "secret" not in job.to_json()


def test_a_span_that_is_ended_twice_has_its_first_end(
    spans: Spans, start: Start, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    telemetry = start(tracer_provider=spans.provider)
    span = telemetry.trace.begin("upload", 1)
    telemetry.close()
    span.end(2)  # its owner goes on for longer than the training
    assert spans["upload"].attributes == {UNFINISHED: True}
    assert spans["upload"].end_time > 2


def test_spans_that_cannot_be_ended_cost_no_figure(
    spans: Spans, start: Start, environment: pytest.MonkeyPatch, failures: dict[tuple[str, str], int]
) -> None:
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        telemetry = start(tracer_provider=spans.provider)
        telemetry.observe(names.JOB_DEVICES, lambda: [(8, {})])
        environment.setattr("opentelemetry.sdk.trace.Span.end", lambda *args: 1 / 0)
        telemetry.close()
        assert sink.latest(names.JOB_DEVICES).value == 8
    assert failures["Trace.end", "ZeroDivisionError"] == 1


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True)])
def test_the_decision_of_what_started_the_run_is_obeyed(
    flags: str, sampled: bool, start: Start, environment: pytest.MonkeyPatch
) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    environment.setenv("TRACEPARENT", f"00-{trace_id}-{span_id}-{flags}")
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        telemetry = start()
        telemetry.span(names.SPAN_EVAL, 1, 2)
        handed_on = telemetry.trace.variables()["TRACEPARENT"]
        telemetry.close()
        assert handed_on.split("-")[1::2] == [trace_id, flags]
        assert {span.name for span in sink.spans()} == (
            {names.SPAN_JOB.name, names.SPAN_EVAL.name} if sampled else set()
        )


def test_a_process_within_another_s_trace_has_no_job_of_its_own(
    spans: Spans, start: Start, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    job = start(tracer_provider=spans.provider)
    other = start(tracer_provider=spans.provider, environ=os.environ, within=job.trace.variables())
    other.span(names.SPAN_EVAL, 1, 2)
    assert other.trace.variables() == job.trace.variables()
    other.close(ValueError())
    job.close()
    assert spans[names.SPAN_EVAL.name].parent.span_id == spans[names.SPAN_JOB.name].context.span_id
    assert spans[names.SPAN_JOB.name].status.status_code is StatusCode.UNSET
