"""The telemetry of one training: opened when it begins, fed by the engine, closed within a bounded time."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.detail import Detail
from akka_otel_callbacks.common.export.outlet import Outlet
from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.hooks import Hooks
from akka_otel_callbacks.common.log import logger, show_to_people
from akka_otel_callbacks.common.logs.hearing import hear
from akka_otel_callbacks.common.logs.record import about
from akka_otel_callbacks.common.presence import Presence, appear
from akka_otel_callbacks.common.recording.pauses import Pauses
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.recording.translator import Capture
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.run.identity import Identity, RunIdentity
from akka_otel_callbacks.common.threads import Closer, ExportLoop
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric, Span
from akka_otel_callbacks.common.vocabulary.points import Attributes, Point
from akka_otel_callbacks.common.vocabulary.source import Source
from akka_otel_callbacks.common.vocabulary.step import Step

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from akka_otel_callbacks.common.export.user_metrics import UserMetrics
    from akka_otel_callbacks.common.logs.outlet import Logs
    from akka_otel_callbacks.common.opening import Spans

__all__ = ["Capture", "Telemetry"]

CLOSE_TIMEOUT_S = 2.0
HOOKS_SHARE = 0.1
"""The part of this time that is kept for the threads that end with the telemetry, even if a collector takes the
rest."""


class Telemetry:
    """Everything that a run publishes in this process: its steps, the figures that are read beside them, spans and log
    lines. Use `start`, never the constructor."""

    def __init__(
        self,
        identity: Identity,
        steps: Steps | None,
        metrics: Outlet,
        spans: Spans,
        logs: Logs,
        hooks: Hooks,
        detail: Detail,
        presence: Presence | None,
    ) -> None:
        self.identity = identity
        self.trace = spans.trace
        self.detail = detail if spans.trace.has_job else Detail.JOB
        """How detailed the spans are."""
        self.recording = metrics.takes or bool(self.detail)
        """Whether anything exports metrics or the spans of steps. If not, there is no point in taking captures."""
        self.pauses = Pauses()
        """What a training does while it makes no step."""
        self.closed = False
        """Whether it has ended or is ending, and takes nothing more."""
        self._steps, self._metrics, self._spans, self._logs = steps, metrics, spans, logs
        traces = () if spans.close is None else (Closer("traces", partial(self._after_steps, spans.close)),)
        self._threads: list[Closer] = [*traces, *metrics.threads, *logs.threads]
        """The threads that export. Each of them sends what is left when it is stopped."""
        self._hooks, self._presence = hooks, presence

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
            within: the `trace.variables()` of the telemetry that has the job's span, if that is another one. The spans
                of this one stand under it, or begin traces of their own if it is empty.
            job: the job's span, if `tracing.plan.planned` has planned it.
            start_ns: when the job began, in Unix nanoseconds. None is now.
            user_metrics: returns the program's own metrics, which are exported too, or None as long as there are none.
                It is not asked if there is a `meter_provider`, which has them itself.
        """
        show_to_people()
        hear()
        selection = select(environ, identity.folder, writer)
        for warning in selection.warnings:
            logger.warning("%s", warning)
        presence = None
        if step_type is not None and isinstance(identity, RunIdentity):
            identity, presence = appear(identity, selection.metrics)
        exporters.load_sdk()
        from akka_otel_callbacks.common import opening

        steps, hooks, resource = None if step_type is None else Steps(step_type), Hooks(), identity.resource()
        spans = opening.open_spans(selection, tracer_provider, resource, environ, within, job or {}, start_ns)
        metrics = opening.open_metrics(selection, meter_provider, resource, steps, identity.share, user_metrics, hooks)
        logs = opening.open_logs(selection, resource, spans.trace)
        telemetry = cls(identity, steps, metrics, spans, logs, hooks, selection.detail, presence)
        telemetry._begin()
        return telemetry

    def _begin(self) -> None:
        """Starts the threads, and sees to it that whatever ends this process also ends them."""
        if self.reports_steps:
            self.publish(self.pauses)
        if self.recording and self._steps is not None:
            self._steps.start()
        for thread in (*self._threads, self._hooks):
            thread.start()
        atexit.register(self.close)
        # A forked child must not export its parent's figures a second time, not even through a provider that is handed
        # in, whose reader the SDK starts again in the child.
        call_in_children(weakref.WeakMethod(self.silence))
        if isinstance(self.identity, RunIdentity):
            current.opened(self)

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
        spans = threading.Thread(target=guarded(self._spans.flush), name="akka-otel-spans", daemon=True)
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

    def _hurry(self) -> None:
        self._metrics.hurry()
        self._logs.hurry()

    def _after_steps(self, close: Callable[[], object]) -> None:
        """Closes the traces, after the translator has written the spans of the steps."""
        if self.detail and self._steps is not None:
            self._steps.catch_up(CLOSE_TIMEOUT_S)
        close()

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
