"""The telemetry of one training: opened when it begins, fed by the engine, closed within a bounded time."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from akka_otel_callbacks.common import exporters, names
from akka_otel_callbacks.common.board import Board, Point
from akka_otel_callbacks.common.export_loop import Closer, ExportLoop
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.identity import RunIdentity
from akka_otel_callbacks.common.log import logger, show_to_people
from akka_otel_callbacks.common.metric import Metric, Span
from akka_otel_callbacks.common.recorder import Recorder
from akka_otel_callbacks.common.selection import Selection, Target, select
from akka_otel_callbacks.common.step import DISTRIBUTIONS, GAUGES, Step

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider

SCOPE = "akka_otel_callbacks"
CLOSE_TIMEOUT_S = 2.0
QUEUE_LIMIT = 256
"""Captures that may wait for the exporter's thread. Half of it, which quick steps reach within an interval, brings the
next export forward. Past it the training thread translates them itself, so that a collector that hangs or an endpoint
that nobody scrapes costs time, not figures."""


class Capture(Protocol):
    """What the training thread leaves behind. `deliver` runs on the exporter's thread, where translation, reads from
    the device and arithmetic belong."""

    def deliver(self, recorder: Recorder) -> None: ...


class Telemetry:
    """Owns the providers, the queue of captures and the recorder. Use `start`, never the constructor."""

    def __init__(self, identity: RunIdentity, step_type: type[Step] | None) -> None:
        self.identity = identity
        self.recording = False
        """Whether anything exports metrics. Where it is False, captures are not worth taking."""
        self._step_type = step_type
        self._captures: deque[Capture] = deque()
        self._draining = threading.Lock()
        self._closers: list[Closer] = []
        self._loops: list[ExportLoop] = []
        self._end_sources: list[Callable[[], None]] = []
        self._close_at_once: list[Callable[[], None]] = []
        self._shown = Board()
        self._closed = False

    @classmethod
    def start(
        cls,
        identity: RunIdentity,
        step_type: type[Step] | None,
        *,
        environ: Mapping[str, str] = os.environ,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        writer: str = "",
    ) -> Telemetry:
        """Opens what the environment asks for, or uses the providers that are handed in. The global providers are
        neither read nor set.

        Args:
            identity: who the run is.
            step_type: what the process reports; None for one that has only observed sources, such as a worker.
            environ: chooses the exporters and names the parent trace.
            meter_provider: exports the metrics in place of one of our own.
            tracer_provider: the same for spans.
            writer: who this process is, where several write the embedded files of one run.
        """
        show_to_people()
        telemetry = cls(identity, step_type)
        selection = select(environ, identity.run_id, writer)
        for warning in selection.warnings:
            logger.warning("%s", warning)
        telemetry._open_metrics(selection, meter_provider)
        telemetry._open_traces(selection, tracer_provider, environ)
        for closer in telemetry._closers:
            closer.start()
        atexit.register(telemetry.close)
        _silence_in_children(telemetry)
        return telemetry

    def capture(self, capture: Capture, *, step: bool = False) -> None:
        """Queues a capture; `step` says that it completes a step. It is all that the training thread does."""
        if not self.recording:
            return
        self._captures.append(capture)
        waiting = len(self._captures)
        if waiting > QUEUE_LIMIT:
            self._relieve()
        elif waiting == QUEUE_LIMIT // 2:
            for loop in self._loops:
                loop.export_soon()
        if step:
            for loop in self._loops:
                loop.step_reported()

    def observe(self, metric: Metric, points: Callable[[], Iterable[Point]]) -> None:
        """Publishes a metric from a source of its own. `points` runs on the exporter's thread at every collection and
        must only read a snapshot."""
        if self.recording:
            from akka_otel_callbacks.common.instruments import observe

            self._end_sources.append(observe(self._meter, metric, points))

    def when_closed(self, end: Callable[[], None]) -> None:
        """Has a source's own threads end with the telemetry. `end` must not block."""
        self._close_at_once.append(end)

    def flush(self, timeout_s: float) -> bool:
        """Exports now, on the exporter's threads, and waits for at most `timeout_s` in all; 0 does not wait. For
        processes that may be killed without an end."""
        deadline = time.monotonic() + timeout_s
        flushed = [loop.flush(max(0.0, deadline - time.monotonic())) for loop in self._loops]
        return all(flushed)

    def span(self, span: Span, start_ns: int, end_ns: int, attributes: Mapping[str, Any] | None = None) -> None:
        """Writes a finished span under the job's span. Times are Unix nanoseconds."""
        self._tracer.start_span(
            span.name, context=self._job_context, start_time=start_ns, attributes=dict(attributes or {})
        ).end(end_ns)

    @guarded
    def close(self, error: BaseException | None = None, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Exports what is left and closes everything, within `timeout_s` in all. Closing twice is closing once.

        Args:
            error: what ended the training, if it did not end well.
            timeout_s: after it, what is still under way goes on in the background and dies with the process.
        """
        if self._closed:
            return
        atexit.unregister(self.close)
        self._end_job(error)
        deadline = time.monotonic() + timeout_s
        for closer in self._closers:
            closer.stop()
        for closer in self._closers:
            closer.join(max(0.0, deadline - time.monotonic()))
        self.silence()
        for close in self._close_at_once:
            close()
        if any(closer.is_alive() for closer in self._closers):
            logger.warning("the last figures could not be sent within %g s; does the collector answer?", timeout_s)

    def silence(self) -> None:
        """Ends every series of a source, and takes no more captures."""
        self._closed, self.recording = True, False
        while self._end_sources:
            self._end_sources.pop()()

    @cached_property
    def _resource(self) -> Resource:
        return self.identity.resource()

    def _open_metrics(self, selection: Selection, meter_provider: MeterProvider | None) -> None:
        if meter_provider is not None:
            logger.info("figures go to the given meter provider")
            self._closers.append(Closer("metrics", _flush_of(meter_provider)))
        else:
            meter_provider = self._private_meter_provider(selection)
        if meter_provider is not None:
            self._register(meter_provider)

    def _private_meter_provider(self, selection: Selection) -> MeterProvider | None:
        outputs = exporters.open_metrics(selection)
        _announce([output.target for output in outputs], selection.reason_none)
        if not outputs:
            return None
        from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider

        from akka_otel_callbacks.common.instruments import views

        for output in outputs:
            if output.interval_s is not None:
                pause_s = exporters.FILE_PAUSE_S if output.every_step else None
                self._loops.append(ExportLoop(output.reader, output.interval_s, pause_s))
            self._close_at_once.append(output.close)
        self._closers.extend(self._loops)
        return MeterProvider(
            [output.reader for output in outputs],
            resource=self._resource,
            exemplar_filter=AlwaysOffExemplarFilter(),  # no span is current on the exporter's thread
            views=views(exponential=all(output.interval_s is not None for output in outputs)),
            shutdown_on_exit=False,  # the SDK's own exit would hold the process for up to 30 s
        )

    def _register(self, meter_provider: MeterProvider) -> None:
        self._meter = meter_provider.get_meter(SCOPE)
        self.recording = True
        if self._step_type is not None:
            self._register_steps(self._step_type)

    def _register_steps(self, step_type: type[Step]) -> None:
        """Creates the step type's instruments. The first callback of a collection drains the queue, so that the
        counters, histograms and gauges of one export are of the same steps."""
        from akka_otel_callbacks.common.instruments import Histograms

        histograms = Histograms(self._meter, [source.metric for source in DISTRIBUTIONS[step_type]])
        self._recorder = Recorder(step_type, histograms.record)
        self.observe(names.TELEMETRY_NONFINITE, self._refreshed_nonfinite)
        self.observe(step_type.counter, self._recorder.count_points)
        for source in GAUGES[step_type]:
            self.observe(source.metric, lambda metric=source.metric: self._shown.points(metric))  # type: ignore[misc]

    def _open_traces(
        self, selection: Selection, tracer_provider: TracerProvider | None, environ: Mapping[str, str]
    ) -> None:
        from opentelemetry.trace import NoOpTracerProvider, set_span_in_context

        from akka_otel_callbacks.common import tracing

        if tracer_provider is not None:
            self._closers.append(Closer("traces", _flush_of(tracer_provider)))
        elif tracer_provider := tracing.private_provider(self._resource, exporters.open_traces(selection)):
            self._closers.append(Closer("traces", tracer_provider.shutdown))
        self._tracer = (tracer_provider or NoOpTracerProvider()).get_tracer(SCOPE)
        self._job = self._tracer.start_span(names.SPAN_JOB.name, context=tracing.parent_context(environ))
        self._job_context = set_span_in_context(self._job)

    def _end_job(self, error: BaseException | None) -> None:
        from opentelemetry.trace import Status, StatusCode

        if error is not None:  # the type only: a message may quote the data
            self._job.set_status(Status(StatusCode.ERROR, type(error).__name__))
        self._job.end()

    def _refreshed_nonfinite(self) -> tuple[Point, ...]:
        self._drain()
        self._shown = self._recorder.board
        return self._recorder.nonfinite_points()

    def _drain(self) -> None:
        with self._draining:
            self._deliver_all()

    def _relieve(self) -> None:
        """The training thread's turn. Where another thread drains already, it never waits for that thread."""
        if self._draining.acquire(blocking=False):
            try:
                self._deliver_all()
            finally:
                self._draining.release()

    def _deliver_all(self) -> None:
        for _ in range(len(self._captures)):  # what comes meanwhile is the next export's
            self._deliver(self._captures.popleft())

    @guarded
    def _deliver(self, capture: Capture) -> None:
        capture.deliver(self._recorder)


def _silence_in_children(telemetry: Telemetry) -> None:
    """A forked child must not export its parent's figures a second time, not even through a provider that is handed
    in, whose reader the SDK starts again in the child."""
    silence = weakref.WeakMethod(telemetry.silence)

    def in_child() -> None:
        if (found := silence()) is not None:
            found()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)


def _flush_of(provider: object) -> Callable[[], object]:
    """The flush of a provider that is handed in; its end is its owner's. The API's no-op providers have none."""
    return getattr(provider, "force_flush", lambda: None)


def _announce(targets: Sequence[Target], reason_none: str) -> None:
    if not targets:
        logger.info("no figures are exported: %s", reason_none)
    for target in targets:
        look = f"; look with `akka-otel show {target.path.parent}`" if target.path else ""
        logger.info("figures go to %s (%s)%s", target, target.reason, look)
