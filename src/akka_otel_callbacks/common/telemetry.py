"""The telemetry of one training: opened when it begins, fed by the engine, closed within a bounded time."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.detail import Detail
from akka_otel_callbacks.common.export.outlet import Nowhere, Outlet
from akka_otel_callbacks.common.export.selection import Selection, select
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.hooks import Hooks
from akka_otel_callbacks.common.log import logger, show_to_people
from akka_otel_callbacks.common.logs.hearing import hear
from akka_otel_callbacks.common.logs.record import about
from akka_otel_callbacks.common.presence import Presence
from akka_otel_callbacks.common.recording.pauses import Pauses
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.recording.translator import Capture
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.run.identity import Identity, RunIdentity
from akka_otel_callbacks.common.threads import Closer, ExportLoop, flush_of
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric, Span
from akka_otel_callbacks.common.vocabulary.points import Attributes, Point
from akka_otel_callbacks.common.vocabulary.scope import SCOPE, VERSION
from akka_otel_callbacks.common.vocabulary.source import Source
from akka_otel_callbacks.common.vocabulary.step import Step

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span as OpenSpan
    from opentelemetry.trace import TracerProvider

    from akka_otel_callbacks.common.export.user_metrics import UserMetrics
    from akka_otel_callbacks.common.logs.outlet import Logs
    from akka_otel_callbacks.common.tracing.trace import Trace

__all__ = ["Capture", "Telemetry"]

CLOSE_TIMEOUT_S = 2.0
HOOKS_SHARE = 0.1
"""The part of this time that is kept for the threads that end with the telemetry, even if a collector takes the
rest."""


class Telemetry:
    """Everything that a run publishes in this process: its steps, the figures that are read beside them, spans and log
    lines. Use `start`, never the constructor."""

    def __init__(self, identity: Identity, step_type: type[Step] | None) -> None:
        self.identity = identity
        self.recording = False
        """Whether anything exports metrics or the spans of steps. If not, there is no point in taking captures."""
        self._steps = None if step_type is None else Steps(step_type)
        self.pauses = Pauses()
        """What a training does while it makes no step."""
        self._metrics: Outlet = Nowhere()
        self.trace: Trace
        self._flush_traces: Callable[[], object] = lambda: None
        self.detail = Detail.JOB
        """How detailed the spans are."""
        self._logs: Logs
        self._threads: list[Closer] = []
        """The threads that export. Each of them sends what is left when it is stopped."""
        self._hooks = Hooks()
        self._presence: Presence | None = None
        self.closed = False
        """Whether it has ended or is ending, and takes nothing more."""

    @classmethod
    def start(
        cls,
        identity: Identity,
        step_type: type[Step] | None,
        *,
        environ: Mapping[str, str] = os.environ,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        writer: str = "",
        within: Mapping[str, str] | None = None,
        job: Mapping[str, str] | None = None,
        start_ns: int | None = None,
        user_metrics: Callable[[], UserMetrics | None] = lambda: None,
    ) -> Telemetry:
        """Opens what the environment asks for, or uses the providers that are handed in. The global providers are
        neither read nor set.

        Args:
            identity: who the process is: a training job, or a service.
            step_type: what the process reports. None for one that has only observed sources, such as a worker.
            environ: chooses the exporters and names the parent trace.
            meter_provider: exports the metrics in place of one of our own.
            tracer_provider: the same for spans.
            writer: who this process is, where several write the embedded files of one run.
            within: the `trace_context` of the telemetry that has the job's span, if that is another one. The spans of
                this one stand under it, or begin traces of their own if it is empty.
            job: the job's span, if `tracing.plan.planned` has planned it.
            start_ns: when the job began, in Unix nanoseconds. None is now.
            user_metrics: returns the program's own metrics, which are exported too, or None as long as there are none.
                It is not asked if there is a `meter_provider`, which has them itself.
        """
        show_to_people()
        hear()
        telemetry = cls(identity, step_type)
        selection = select(environ, identity.folder, writer)
        for warning in selection.warnings:
            logger.warning("%s", warning)
        telemetry._appear(selection)
        exporters.load_sdk()
        telemetry._open_traces(selection, tracer_provider, environ, within, job or {}, start_ns)
        telemetry._open_metrics(selection, meter_provider, user_metrics)
        telemetry._open_logs(selection)
        if telemetry.reports_steps:
            telemetry.publish(telemetry.pauses)
        telemetry._start_threads()
        atexit.register(telemetry.close)
        # A forked child must not export its parent's figures a second time, not even through a provider that is handed
        # in, whose reader the SDK starts again in the child.
        call_in_children(weakref.WeakMethod(telemetry.silence))
        if isinstance(identity, RunIdentity):
            current.opened(telemetry)
        return telemetry

    @property
    def reports_steps(self) -> bool:
        """Whether this is the telemetry of a training, and not of a process or a single evaluation beside one."""
        return self._steps is not None

    def capture(self, capture: Capture, *, step: bool = False) -> None:
        """Queues a capture. This is all that the training thread does. `step` says that the capture completes a
        step."""
        if self.recording and self._steps is not None:
            self._steps.add(capture, step=step)

    def observe(self, metric: Metric, points: Callable[[], Iterable[Point]]) -> None:
        """Publishes a metric that belongs to no step. `points` runs on the exporter's thread at every collection and
        must only read a snapshot."""
        if self.recording:
            self._metrics.observe(metric, points)

    def publish(self, source: Source) -> None:
        """Publishes every metric of a source."""
        for metric in source.metrics:
            self.observe(metric, partial(source.points, metric))

    def measure(self, metric: Metric, value: float, attributes: Attributes) -> None:
        """Adds one value to a histogram that belongs to no step. Any thread may call it.

        Args:
            metric: a histogram of the registry.
            value: a finite number in the metric's unit.
            attributes: those of the series, always in the same order.
        """
        if self.recording:
            self._metrics.measure(metric, value, attributes)

    def when_closed(self, end: Callable[[], None]) -> None:
        """Calls `end` when the telemetry closes, for example to end a source's threads. The close gives up on one that
        takes longer than its own timeout."""
        self._hooks.add(end)

    def flush(self, timeout_s: float) -> bool:
        """Exports now, on the exporter's threads, and waits for at most `timeout_s` in all; 0 does not wait. It is for
        processes that may be killed before they can close."""
        deadline = time.monotonic() + timeout_s
        self._hurry()
        spans = threading.Thread(target=guarded(self._flush_traces), name="akka-otel-spans", daemon=True)
        has_spans = self.trace.has_spans  # read once: another thread may begin the first span meanwhile
        if has_spans:
            spans.start()
        flushed = self._metrics.flush(deadline), self._logs.flush(deadline)
        if has_spans:
            spans.join(max(0.0, deadline - time.monotonic()))
        return all(flushed) and not spans.is_alive()

    def span(
        self,
        span: Span,
        start_ns: int,
        end_ns: int,
        attributes: Mapping[str, Any] | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Writes a finished span under the job's span. Times are Unix nanoseconds; `error` is what ended it."""
        from akka_otel_callbacks.common.tracing.trace import mark_failed

        written = self.trace.start(span.name, start_ns, attributes=attributes)
        if error is not None:
            mark_failed(written, type(error))
        written.end(end_ns)

    def begin_span(
        self,
        name: str,
        start_ns: int,
        parent: OpenSpan | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> OpenSpan:
        """Begins a span of the job and leaves it open. See `Trace.begin`."""
        return self.trace.begin(name, start_ns, parent, attributes)

    def trace_context(self) -> dict[str, str]:
        """The job's span as environment variables. See `Trace.variables`."""
        return self.trace.variables()

    def hear(self, line: logging.LogRecord) -> None:
        """Adds the IDs of the job's span to a log line of the package, and sends it where logs go."""
        self.trace.mark(line)
        self._logs.add(line)

    @guarded
    def close(self, error: BaseException | None = None, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Exports what is left and closes everything, within `timeout_s` in all. A second close does nothing.

        Args:
            error: the exception that ended the training, if any.
            timeout_s: work that takes longer goes on in the background and dies with the process.
        """
        if self.closed:
            return
        if error is not None and self.reports_steps:
            _say_what_ended_it(error)
        self.closed = True
        current.ended(self)
        atexit.unregister(self.close)
        self.trace.end(error)
        begun = time.monotonic()
        try:
            self._export_what_is_left(begun + (1 - HOOKS_SHARE) * timeout_s)
            self._hooks.join(max(0.0, begun + timeout_s - time.monotonic()))
            if self._hooks.is_alive():
                logger.warning("background threads, such as the GPU sampler, did not end within %g s", timeout_s)
        except BaseException:  # a person may interrupt the wait, and is told all the same what it was for
            timeout_s = max(0.1, round(time.monotonic() - begun, 1))
            raise
        finally:
            self._say_what_is_missing(timeout_s)
            if self._presence is not None:
                self._presence.leave()

    def _export_what_is_left(self, deadline: float) -> None:
        """Waits for the last exports. Whatever happens meanwhile, it ends the series and the hooks."""
        for thread in self._threads:
            thread.stop()
        self._hurry()
        try:
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            self.silence()
            self._hooks.stop()
        if self._steps is not None:
            self._steps.join(max(0.0, deadline - time.monotonic()))

    def silence(self) -> None:
        """Ends every series of a source, and takes no more captures."""
        self.closed, self.recording = True, False
        if self._steps is not None:
            self._steps.stop()
        self._metrics.silence()

    def _appear(self, selection: Selection) -> None:
        """Lets other processes see that this one publishes the training. If another live process publishes under the
        same name, the instance tells their series apart."""
        if not isinstance(self.identity, RunIdentity) or not self.reports_steps:
            return
        self._presence = Presence(self.identity.run_id, self.identity.attempt, selection.metrics)
        if not self._presence.take():
            logger.warning(
                "a live process publishes attempt %d of run %s already. A query of that attempt finds the figures of "
                "both. Give each training an ID of its own (%s in OTEL_RESOURCE_ATTRIBUTES, or run_id=), or leave out "
                "the attempt's number, which is then counted",
                self.identity.attempt,
                self.identity.run_id,
                names.ATTR_RUN_ID.name,
            )
            self.identity = self.identity.beside_another()

    @cached_property
    def _resource(self) -> Resource:
        return self.identity.resource()

    def _start_threads(self) -> None:
        if self.recording and self._steps is not None:
            self._steps.start()
        for thread in (*self._threads, self._hooks):
            thread.start()

    def _hurry(self) -> None:
        self._metrics.hurry()
        self._logs.hurry()

    def _open_metrics(
        self,
        selection: Selection,
        provider: MeterProvider | None,
        user_metrics: Callable[[], UserMetrics | None],
    ) -> None:
        if provider is not None:
            from akka_otel_callbacks.common.export.given import GivenProvider

            logger.info("figures go to the given meter provider")
            self._metrics = GivenProvider(provider, self._steps)
        elif outputs := exporters.open_metrics(selection):
            from akka_otel_callbacks.common.export.own import OwnExporters

            self._metrics = OwnExporters(outputs, self._resource, self._steps, self.identity.share, user_metrics)
            for output in outputs:
                self._hooks.add(output.close)
        self.recording = self._metrics.takes or bool(self.detail)
        self._threads += self._metrics.threads

    def _open_traces(
        self,
        selection: Selection,
        given: TracerProvider | None,
        environ: Mapping[str, str],
        within: Mapping[str, str] | None,
        job: Mapping[str, str],
        start_ns: int | None,
    ) -> None:
        from opentelemetry.trace import NoOpTracerProvider

        from akka_otel_callbacks.common.tracing.ids import Planned
        from akka_otel_callbacks.common.tracing.parent import parent_context, span_of
        from akka_otel_callbacks.common.tracing.provider import private_provider
        from akka_otel_callbacks.common.tracing.trace import Trace

        provider = given
        if given is not None:
            self._flush_traces = flush_of(given)
            self._threads.append(Closer("traces", partial(self._after_steps, self._flush_traces)))
        elif own := private_provider(self._resource, exporters.open_traces(selection), environ, Planned(span_of(job))):
            self._flush_traces = own.force_flush
            self._threads.append(Closer("traces", partial(self._after_steps, own.shutdown)))
            provider = own
        tracer = (provider or NoOpTracerProvider()).get_tracer(SCOPE, VERSION)
        parent = parent_context(environ if within is None else within)
        self.trace = Trace(tracer, parent, has_job=within is None, start_ns=start_ns)
        if self.trace.has_job:
            self.detail = selection.detail

    def _after_steps(self, close: Callable[[], object]) -> None:
        """Closes the traces, after the translator has written the spans of the steps."""
        if self.detail and self._steps is not None:
            self._steps.catch_up(CLOSE_TIMEOUT_S)
        close()

    def _open_logs(self, selection: Selection) -> None:
        from akka_otel_callbacks.common.logs.outlet import Logs
        from akka_otel_callbacks.common.logs.push import LogPush

        opened = exporters.open_logs(selection)
        place = self.trace.place
        self._logs = Logs([LogPush(exporter, target, self._resource, place, SCOPE) for exporter, target in opened])
        self._threads += self._logs.threads

    def _say_what_is_missing(self, timeout_s: float) -> None:
        missing = self._metrics.missing(timeout_s)
        for line in missing:
            logger.warning("%s", line)
        for thread in () if missing else self._threads:  # what keeps the figures out keeps the spans out, too
            if thread.is_alive() and not isinstance(thread, ExportLoop):
                logger.warning("the last %s were not sent within %g s", thread.what, timeout_s)
        self._logs.say_what_is_missing()
        if self._steps is not None:
            self._steps.say_what_is_missing()


def _say_what_ended_it(error: BaseException) -> None:
    """Logs the class of the exception only, because its message may quote the data."""
    name = type(error).__name__
    what = about(names.EVENT_JOB_FAILED, {names.ATTR_ERROR_TYPE.name: name})
    if isinstance(error, Exception):
        logger.error("the training failed with %s", name, extra=what)
    else:
        logger.warning("the training was stopped by %s", name, extra=what)
