"""A job's span that others know before it begins."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.tracing.plan import planned
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink
from tests.support.traces import check_trace

Start = Callable[..., Telemetry]
TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
STARTED = f"00-{TRACE_ID}-{PARENT_ID}-01"


@pytest.mark.parametrize("traceparent", ["", STARTED])
def test_who_begins_earlier_stands_under_it(traceparent: str, start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TRACEPARENT", traceparent)
    environment.setenv("TRACESTATE", "vendor=1" if traceparent else "")
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        plan = planned(os.environ)
        worker = start(None, within=plan)
        worker.span(names.SPAN_CHECKPOINT_OPERATION, 1, 2)
        assert worker.flush(5), "a worker may be killed after it"
        assert len(sink.spans()) == 1
        job = start(job=plan)
        assert job.trace.variables() == worker.trace.variables() == plan
        job.span(names.SPAN_EVAL, 10**18, 10**18)
        job.close()
        worker.close()
        spans = sink.spans()
    (found,) = (span for span in spans if span.name == names.SPAN_JOB.name)
    assert plan["TRACEPARENT"] == f"00-{found.trace_id}-{found.span_id}-01"
    assert {span.parent_span_id for span in spans} == {found.span_id, PARENT_ID if traceparent else ""}
    assert {span.trace_id for span in spans} == ({TRACE_ID} if traceparent else {found.trace_id})
    assert found.trace_state == ("vendor=1" if traceparent else "")


def test_two_plans_are_two_jobs(environment: pytest.MonkeyPatch) -> None:
    assert planned(os.environ) != planned(os.environ)


@pytest.mark.parametrize(
    ("variables", "flags"),
    [
        ({"TRACEPARENT": STARTED[:-2] + "00"}, "00"),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "00"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}, "00"),
        ({"OTEL_TRACES_SAMPLER": "always_on", "TRACEPARENT": STARTED[:-2] + "00"}, "01"),
    ],
)
def test_the_plan_says_what_is_decided(
    variables: dict[str, str], flags: str, start: Start, environment: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    plan = planned(os.environ)
    assert plan["TRACEPARENT"].endswith(f"-{flags}")
    job = start(job=plan)
    assert job.trace.variables() == plan
    assert job.trace.has_job == (flags == "01")


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SPAN_EVENT_COUNT_LIMIT": "few"},
    ],
)
def test_without_spans_there_is_no_plan(
    variables: dict[str, str], environment: pytest.MonkeyPatch, failures: object
) -> None:
    for name, value in {"TRACEPARENT": STARTED, **variables}.items():
        environment.setenv(name, value)
    assert planned(os.environ) == {}


def test_a_plan_is_no_span(start: Start, environment: pytest.MonkeyPatch) -> None:
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        planned(os.environ)
        start().close()
        (job,) = sink.spans()
        check_trace([job], job.trace_id, "")
