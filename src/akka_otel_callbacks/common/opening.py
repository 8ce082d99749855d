"""Opens the ways by which figures, spans and log lines leave a process: what the environment selects, or the providers
that are handed in. It loads the SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NoOpTracerProvider, TracerProvider

from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.given import GivenProvider
from akka_otel_callbacks.common.export.outlet import Nowhere, Outlet
from akka_otel_callbacks.common.export.own import OwnExporters
from akka_otel_callbacks.common.export.selection import Selection
from akka_otel_callbacks.common.export.user_metrics import UserMetrics
from akka_otel_callbacks.common.hooks import Hooks
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.logs.outlet import Logs
from akka_otel_callbacks.common.logs.push import LogPush
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.threads import flush_of
from akka_otel_callbacks.common.tracing.ids import Planned
from akka_otel_callbacks.common.tracing.parent import parent_context, span_of
from akka_otel_callbacks.common.tracing.provider import private_provider
from akka_otel_callbacks.common.tracing.trace import Trace
from akka_otel_callbacks.common.vocabulary.scope import SCOPE, VERSION


def open_metrics(
    selection: Selection,
    given: MeterProvider | None,
    resource: Resource,
    steps: Steps | None,
    share: float,
    user_metrics: Callable[[], UserMetrics | None],
    hooks: Hooks,
) -> Outlet:
    """The way of the figures.

    Args:
        selection: what the environment asks for.
        given: a provider that takes its place.
        resource: who the process is.
        steps: None for a process that reports none.
        share: where in the interval the first export falls, from 0 to 1.
        user_metrics: returns the program's own metrics, None while it has none.
        hooks: gets whatever is to be closed at the end.
    """
    if given is not None:
        logger.info("figures go to the given meter provider")
        return GivenProvider(given, steps)
    outputs = exporters.open_metrics(selection)
    if not outputs:
        return Nowhere()
    outlet = OwnExporters(outputs, resource, steps, share, user_metrics)
    for output in outputs:
        hooks.add(output.close)
    return outlet


@dataclass(frozen=True, slots=True)
class Spans:
    """The way of the spans."""

    trace: Trace
    flush: Callable[[], object] = lambda: None
    """Sends what there is."""
    close: Callable[[], object] | None = None
    """Sends what is left, and closes a provider of our own. None if nothing leaves."""


def open_spans(
    selection: Selection,
    given: TracerProvider | None,
    resource: Resource,
    environ: Mapping[str, str],
    within: Mapping[str, str] | None,
    job: Mapping[str, str],
    start_ns: int | None,
) -> Spans:
    """The way of the spans, with the job's span begun. The arguments are those of `Telemetry.start`, of the same
    names."""
    parent = parent_context(environ if within is None else within)

    def trace(provider: TracerProvider) -> Trace:
        return Trace(provider.get_tracer(SCOPE, VERSION), parent, has_job=within is None, start_ns=start_ns)

    if given is not None:
        return Spans(trace(given), flush_of(given), flush_of(given))
    own = private_provider(resource, exporters.open_traces(selection), environ, Planned(span_of(job)))
    if own is not None:
        return Spans(trace(own), own.force_flush, own.shutdown)
    return Spans(trace(NoOpTracerProvider()))


def open_logs(selection: Selection, resource: Resource, trace: Trace) -> Logs:
    """The way of the log lines, which stand in the trace."""
    opened = exporters.open_logs(selection)
    return Logs([LogPush(exporter, target, resource, trace.place, SCOPE) for exporter, target in opened])
