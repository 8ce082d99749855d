"""Spans of a job, joined to the trace that started the run."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from akka_otel_callbacks.common.log import logger

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter


class UnseededIds(IdGenerator):
    """IDs that a training's seed does not reach. The SDK draws them from `random`, which trainers seed, so that every
    rank and every run of one seed would write the same trace."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1


def parent_context(environ: Mapping[str, str]) -> Context:
    """The context that `TRACEPARENT` and `TRACESTATE` name; an empty one where they are missing or malformed."""
    carrier = {name: environ[name.upper()] for name in ("traceparent", "tracestate") if environ.get(name.upper())}
    return TraceContextTextMapPropagator().extract(carrier)


def private_provider(resource: Resource, exporters: Sequence[SpanExporter]) -> TracerProvider | None:
    """A tracer provider of our own; the global one belongs to the user's program. None where there is no exporter or
    the SDK refuses a variable of the environment."""
    if not exporters:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    try:
        provider = TracerProvider(resource=resource, id_generator=UnseededIds(), shutdown_on_exit=False)
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    except ValueError as error:
        logger.warning("no spans are exported, because a variable OTEL_BSP_* or OTEL_*_LIMIT is wrong: %s", error)
        return None
    return provider
