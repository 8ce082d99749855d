"""The telemetry of one training: opened when it begins, fed by the engine, closed within a bounded time."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.selection import Selection, select
from akka_otel_callbacks.common.export.targets.target import MetricOutput
from akka_otel_callbacks.common.forks import call_in_children
from akka_otel_callbacks.common.guard import guarded, report
from akka_otel_callbacks.common.log import logger, show_to_people
from akka_otel_callbacks.common.logs.hearing import hear
from akka_otel_callbacks.common.logs.record import about
from akka_otel_callbacks.common.recording.observed import Observed, ReadPoints
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.translator import Capture, Translator
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.run.identity import Identity, RunIdentity
from akka_otel_callbacks.common.threads import Closer, ExportLoop
from akka_otel_callbacks.common.tracing.detail import Detail
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

    from akka_otel_callbacks.common.export.push import Push
    from akka_otel_callbacks.common.logs.push import LogPush
    from akka_otel_callbacks.common.tracing.trace import Trace

__all__ = ["Capture", "Telemetry"]

CLOSE_TIMEOUT_S = 2.0
HOOKS_SHARE = 0.1
"""What of that is kept for what ends with the telemetry, where a collector takes the rest."""


class Telemetry:
    """Owns the exporters, the translator and the recorder. Use `start`, never the constructor."""

    def __init__(self, identity: Identity, step_type: type[Step] | None) -> None:
        self.identity = identity
        self.recording = False
        """Whether anything exports metrics. Where it is False, captures are not worth taking."""
        self._step_type = step_type
        self._recorder = None if step_type is None else Recorder(step_type)
        self._closers: list[Closer] = []
        self._loops: list[ExportLoop] = []
        self._translator = None if self._recorder is None else Translator(self._recorder, self._loops)
        self._observe: Callable[[Metric, ReadPoints], Callable[[], None]]
        self._measure: Callable[[Metric, float, Attributes], None]
        self._pushes: list[tuple[Push, ExportLoop]] = []
        self._end_sources: list[Callable[[], None]] = []
        self._close_at_once: list[Callable[[], None]] = []
        self.trace: Trace
        self.detail = Detail.JOB
        """How fine the spans are that are worth making."""
        self._logs: list[LogPush] = []
        self._hooks = Closer("hooks", self._run_hooks)
        self.closed = False
        """Whether nothing more is taken: it has ended, or is about to."""

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
    ) -> Telemetry:
        """Opens what the environment asks for, or uses the providers that are handed in. The global providers are
        neither read nor set.

        Args:
            identity: who the process is: a training job, or a service.
            step_type: what the process reports; None for one that has only observed sources, such as a worker.
            environ: chooses the exporters and names the parent trace.
            meter_provider: exports the metrics in place of one of our own.
            tracer_provider: the same for spans.
            writer: who this process is, where several write the embedded files of one run.
            within: where the job's span is another telemetry's, the `trace_context` of that one. The spans of this one
                stand under it, or begin traces of their own where it is empty.
        """
        show_to_people()
        hear()
        telemetry = cls(identity, step_type)
        selection = select(environ, identity.folder, writer)
        for warning in selection.warnings:
            logger.warning("%s", warning)
        exporters.load_sdk()
        telemetry._open_traces(selection, tracer_provider, environ, within)
        telemetry._open_metrics(selection, meter_provider)
        telemetry._open_logs(selection)
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
        """Whether it is that of a training, and not of a process or a single evaluation beside one."""
        return self._step_type is not None

    def capture(self, capture: Capture, *, step: bool = False) -> None:
        """Queues a capture; `step` says that it completes a step. It is all that the training thread does."""
        if self.recording and self._translator is not None:
            self._translator.add(capture, step=step)

    def observe(self, metric: Metric, points: Callable[[], Iterable[Point]]) -> None:
        """Publishes a metric from a source of its own. `points` runs on the exporter's thread at every collection and
        must only read a snapshot."""
        if self.recording:
            self._end_sources.append(self._observe(metric, points))

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
            self._measure(metric, value, attributes)
            for loop in self._loops:
                loop.step_reported()

    def when_closed(self, end: Callable[[], None]) -> None:
        """Has a source's own threads end with the telemetry. One that takes long is left behind."""
        self._close_at_once.append(end)

    def flush(self, timeout_s: float) -> bool:
        """Exports now, on the exporter's threads, and waits for at most `timeout_s` in all; 0 does not wait. For
        processes that may be killed without an end."""
        deadline = time.monotonic() + timeout_s
        self._hurry()
        loops = [*self._loops, *(push.loop for push in self._logs)]
        flushed = [loop.flush(max(0.0, deadline - time.monotonic())) for loop in loops]
        return all(flushed)

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

        written = self.begin_span(span.name, start_ns, attributes=attributes)
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
        """As of `Trace.begin`."""
        return self.trace.begin(name, start_ns, parent, attributes)

    def trace_context(self) -> dict[str, str]:
        """As of `Trace.variables`."""
        return self.trace.variables()

    def hear(self, line: logging.LogRecord) -> None:
        """Takes a log line of the package's: it gets the IDs of the job's span, and goes where logs are sent."""
        self.trace.mark(line)
        for push in self._logs:
            push.add(line)

    @guarded
    def close(self, error: BaseException | None = None, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Exports what is left and closes everything, within `timeout_s` in all. Closing twice is closing once.

        Args:
            error: what ended the training, if it did not end well.
            timeout_s: after it, what is still under way goes on in the background and dies with the process.
        """
        if self.closed:
            return
        if error is not None and self.reports_steps:
            _say_what_ended_it(error)
        self.closed = True
        current.ended(self)
        atexit.unregister(self.close)
        self.trace.end(error)
        deadline = time.monotonic() + timeout_s
        exported_by = deadline - HOOKS_SHARE * timeout_s
        for closer in self._closers:
            closer.stop()
        self._hurry()
        for closer in self._closers:
            closer.join(max(0.0, exported_by - time.monotonic()))
        self.silence()
        if self._translator is not None and self._translator.is_alive():
            self._translator.join(max(0.0, exported_by - time.monotonic()))
        self._hooks.stop()
        self._hooks.join(max(0.0, deadline - time.monotonic()))
        self._say_what_is_missing(timeout_s)

    def silence(self) -> None:
        """Ends every series of a source, and takes no more captures."""
        self.closed, self.recording = True, False
        if self._translator is not None:
            self._translator.stop()
        while self._end_sources:
            self._end_sources.pop()()

    @cached_property
    def _resource(self) -> Resource:
        return self.identity.resource()

    def _start_threads(self) -> None:
        if self.recording and self._translator is not None:
            self._translator.start()
        for closer in (*self._closers, self._hooks):
            closer.start()

    def _hurry(self) -> None:
        for push, _ in self._pushes:
            push.hurry()
        for log_push in self._logs:
            log_push.hurry()

    def _run_hooks(self) -> None:
        for close in self._close_at_once:
            try:
                close()
            except Exception as error:  # noqa: BLE001 - drivers and users' code raise whatever they raise
                report("the end of a source", error)

    def _open_metrics(self, selection: Selection, meter_provider: MeterProvider | None) -> None:
        if meter_provider is not None:
            logger.info("figures go to the given meter provider")
            self._closers.append(Closer("metrics", _flush_of(meter_provider)))
            self._use_instruments(meter_provider)
            return
        outputs = exporters.open_metrics(selection)
        if outputs or self.detail:
            self._use_data(outputs)

    def _use_instruments(self, meter_provider: MeterProvider) -> None:
        """The readers of a provider that is handed in are not ours and can only read instruments."""
        from akka_otel_callbacks.common.export.instruments import StepInstruments, measure, observe

        meter = meter_provider.get_meter(SCOPE, VERSION)
        self._observe, self._measure, self.recording = partial(observe, meter), partial(measure, meter), True
        if self._step_type is not None and self._recorder is not None and self._translator is not None:
            instruments = StepInstruments(meter, self._step_type, self._recorder, self._translator)
            self._end_sources.extend(instruments.ends)

    def _use_data(self, outputs: Sequence[MetricOutput]) -> None:
        """Our own exporters get data: every step, and a histogram as a whole, where an instrument takes value by
        value and shows the latest."""
        from akka_otel_callbacks.common.export.producer import Run
        from akka_otel_callbacks.common.export.push import Push
        from akka_otel_callbacks.common.export.scrape import serve

        observed = Observed()
        run = Run(self._resource, now_ns(), observed, self._recorder, self._translator)
        self._observe, self._measure, self.recording = observed.add, run.measured.record, True
        for output in outputs:
            self._close_at_once.append(output.close)
            if output.scraped is not None:
                serve(output.scraped, run)
            if output.exporter is not None:
                push = Push(output.exporter, run, output.target)
                interval_s, pause_s, share = output.schedule.interval_s, output.schedule.pause_s, self.identity.share
                self._loops.append(ExportLoop(push.export, push.close, interval_s, pause_s, share))
                self._pushes.append((push, self._loops[-1]))
        self._closers.extend(self._loops)

    def _open_traces(
        self,
        selection: Selection,
        tracer_provider: TracerProvider | None,
        environ: Mapping[str, str],
        within: Mapping[str, str] | None,
    ) -> None:
        from opentelemetry.trace import NoOpTracerProvider

        from akka_otel_callbacks.common.tracing.parent import parent_context
        from akka_otel_callbacks.common.tracing.provider import private_provider
        from akka_otel_callbacks.common.tracing.trace import Trace

        if tracer_provider is not None:
            self._closers.append(Closer("traces", partial(self._after_steps, _flush_of(tracer_provider))))
        elif tracer_provider := private_provider(self._resource, exporters.open_traces(selection), environ):
            self._closers.append(Closer("traces", partial(self._after_steps, tracer_provider.shutdown)))
        tracer = (tracer_provider or NoOpTracerProvider()).get_tracer(SCOPE, VERSION)
        parent = parent_context(environ if within is None else within)
        self.trace = Trace(tracer, parent, has_job=within is None)
        if self.trace.has_job:
            self.detail = selection.detail

    def _after_steps(self, close: Callable[[], object]) -> None:
        """The translator writes the spans of steps."""
        if self.detail and self._translator is not None:
            self._translator.catch_up(CLOSE_TIMEOUT_S)
        close()

    def _open_logs(self, selection: Selection) -> None:
        from akka_otel_callbacks.common.logs.push import LogPush

        for exporter, target in exporters.open_logs(selection):
            self._logs.append(LogPush(exporter, target, self._resource, self.trace.place, SCOPE))
        self._closers.extend(push.loop for push in self._logs)

    def _say_what_is_missing(self, timeout_s: float) -> None:
        told = [push.missing(timeout_s, ended=not loop.is_alive()) for push, loop in self._pushes]
        for missing in filter(None, told):
            logger.warning("%s", missing)
        for closer in () if any(told) else self._closers:  # what keeps the figures out keeps the spans out, too
            if closer.is_alive() and not isinstance(closer, ExportLoop):
                logger.warning("the last %s were not sent within %g s", closer.what, timeout_s)
        for push in self._logs:
            push.say_what_is_missing()
        if self._hooks.is_alive():
            logger.warning("what ends with the telemetry, such as the GPU sampler, did not end within %g s", timeout_s)
        if self._translator is not None:
            self._translator.say_what_is_missing()


def _say_what_ended_it(error: BaseException) -> None:
    """By its class: a message may quote the data."""
    name = type(error).__name__
    what = about(names.EVENT_JOB_FAILED, {names.ATTR_ERROR_TYPE.name: name})
    if isinstance(error, Exception):
        logger.error("the training failed with %s", name, extra=what)
    else:
        logger.warning("the training was stopped by %s", name, extra=what)


def _flush_of(provider: object) -> Callable[[], object]:
    """The flush of a provider that is handed in; its end is its owner's. The API's no-op providers have none."""
    return getattr(provider, "force_flush", lambda: None)
