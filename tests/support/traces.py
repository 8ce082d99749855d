"""Whether the spans of a run make one trace, as a receiver has them."""

from __future__ import annotations

from collections.abc import Sequence

from akka_otel_callbacks.common.vocabulary import names
from tests.support.points import SpanRecord

JOB, EVAL = names.SPAN_JOB.name, names.SPAN_EVAL.name
CHECKPOINT = names.SPAN_CHECKPOINT_OPERATION.name
STEPS = names.SPAN_RL_STEP.name, names.SPAN_SFT_STEP.name
CLOCKS_APART_NS = 1_000_000
"""Spans are timed by clocks that are read one after the other."""


def check_trace(spans: Sequence[SpanRecord], trace_id: str, parent_id: str, earlier: Sequence[str] = ()) -> SpanRecord:
    """Every span of one job has the trace and the right parent, lies within it, and is there once.

    Args:
        spans: whatever arrived, of every process of the job.
        trace_id: the trace that started it.
        parent_id: the span that started it; empty where the job began the trace.
        earlier: names of spans of processes that may begin before the job's span does.

    Returns:
        The job's span.
    """
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans), "a span came twice"
    assert {span.trace_id for span in spans} == {trace_id}
    (job,) = (span for span in spans if span.name == JOB)
    assert job.parent_span_id == parent_id
    for span in spans:
        if span is job:
            continue
        assert span.parent_span_id in by_id, f"the parent of {span.name} did not arrive"
        parent = by_id[span.parent_span_id]
        assert parent.name in parents_of(span.name), f"{span.name} stands under {parent.name}"
        assert span.start_ns <= span.end_ns
        assert span.name in earlier or parent.start_ns - CLOCKS_APART_NS <= span.start_ns
        assert span.end_ns <= parent.end_ns + CLOCKS_APART_NS, f"{span.name} is longer than {parent.name}"
    return job


def parents_of(name: str) -> tuple[str, ...]:
    if name.startswith(CHECKPOINT):
        return JOB, f"{CHECKPOINT}.publish"
    if name in STEPS or name == EVAL:
        return (JOB,)
    return JOB, name.rpartition(".")[0]


def named(spans: Sequence[SpanRecord], name: str) -> list[SpanRecord]:
    """The spans of a name, by their start."""
    return sorted((span for span in spans if span.name == name), key=lambda span: span.start_ns)
