"""The job's span, and every span under it until the job ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.tracing.parent import variables
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer


class Trace:
    """The spans of one process of a job.

    Args:
        tracer: makes the spans.
        parent: where the process stands: what started it, or the job's span in another process.
        has_job: whether the job's span is this process's. Otherwise its spans stand under `parent`.
        start_ns: when the job began, as Unix time; now without it.
    """

    def __init__(self, tracer: Tracer, parent: Context, *, has_job: bool, start_ns: int | None = None) -> None:
        from opentelemetry.trace import get_current_span, set_span_in_context

        self._tracer = tracer
        self._open: list[Span] = []
        self._begun = False
        self._changing = threading.Lock()
        begun_ns = now_ns() if start_ns is None else start_ns
        self._job = tracer.start_span(names.SPAN_JOB.name, context=parent, start_time=begun_ns) if has_job else None
        self._context = parent if self._job is None else set_span_in_context(self._job)
        self.place: SpanContext = get_current_span(self._context).get_span_context()
        """The job's span, as far as this process knows one. It is not valid where nothing is traced."""

    @property
    def has_job(self) -> bool:
        """Whether the job's span is this process's, and is recorded: it is not where nothing is exported, or where
        what started the run, or the sampler, decided so."""
        return self._job is not None and self._job.is_recording()

    @property
    def has_spans(self) -> bool:
        """Whether there may be some to send."""
        return self._begun

    def variables(self) -> dict[str, str]:
        """`TRACEPARENT` and `TRACESTATE` for a process whose spans are to stand under the job's. Empty where nothing
        is traced."""
        return variables(self._context)

    def mark(self, line: logging.LogRecord) -> None:
        """Puts the IDs on a log line, under the names that OpenTelemetry's instrumentation of `logging` uses."""
        if self.place.is_valid:
            line.otelTraceID, line.otelSpanID = f"{self.place.trace_id:032x}", f"{self.place.span_id:016x}"

    def begin(
        self, name: str, start_ns: int, parent: Span | None = None, attributes: Mapping[str, Any] | None = None
    ) -> Span:
        """Begins a span under another, by default the job's. Whoever begins it ends it. If nobody has by the end of the
        job, it ends there and says so."""
        span = self.start(name, start_ns, parent, attributes)
        if span.is_recording():
            with self._changing:
                self._open = [*filter(_is_open, self._open), span]
        return span

    def start(
        self, name: str, start_ns: int, parent: Span | None = None, attributes: Mapping[str, Any] | None = None
    ) -> Span:
        """Like `begin`, but the end of the job leaves the span alone. It is for a span that has ended already and is
        written as a whole."""
        from opentelemetry.trace import set_span_in_context

        context = self._context if parent is None else set_span_in_context(parent)
        self._begun = True
        return self._tracer.start_span(
            name, context=context, start_time=start_ns, attributes=dict(clean(attributes or {}))
        )

    def describe(self, attributes: Mapping[str, Any]) -> None:
        """Sets more attributes of the job's span, where this process has it. Any thread may call it."""
        if self._job is not None:
            self._job.set_attributes(dict(clean(attributes)))

    @guarded
    def end(self, error: BaseException | None) -> None:
        """Ends the job's span, and before it whatever is open.

        Args:
            error: what ended the training, if it did not end well.
        """
        end_ns = now_ns()
        with self._changing:
            left = [*filter(_is_open, self._open)]
            self._open = []
        for span in reversed(left):
            span.set_attribute(names.ATTR_SPAN_UNFINISHED.name, True)
            span.end(end_ns)
        if self._job is not None:
            if error is not None:
                mark_failed(self._job, type(error))
            self._job.end(end_ns)


def mark_failed(span: Span, error: type[BaseException]) -> None:
    """Marks a span as failed with the class of its exception alone: a message may quote the data."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(names.ATTR_ERROR_TYPE.name, error.__name__)
    span.set_status(Status(StatusCode.ERROR, error.__name__))


def _is_open(span: Span) -> bool:
    return span.is_recording()
