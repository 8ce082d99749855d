"""Spans of a job, joined to the trace that started the run."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import one_line

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


BATCHES = {
    "max_queue_size": ("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
    "schedule_delay_millis": ("OTEL_BSP_SCHEDULE_DELAY", 5000),
    "max_export_batch_size": ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
    "export_timeout_millis": ("OTEL_BSP_EXPORT_TIMEOUT", 30_000),
}
"""How the SDK gathers spans: its argument, its variable and its default."""


MOST_MEMBERS = 32
MEMBER = re.compile(
    r"([a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
"""Of `TRACESTATE`, as W3C has them."""


def parent_context(environ: Mapping[str, str]) -> Context:
    """The context that `TRACEPARENT` and `TRACESTATE` name; an empty one where they are missing or malformed. The SDK
    prints the state's members that it cannot use, which vendors put what they like in."""
    carrier = {name: environ[name.upper()] for name in ("traceparent", "tracestate") if environ.get(name.upper())}
    if not _is_state(carrier.get("tracestate", "")):
        del carrier["tracestate"]
        logger.warning("TRACESTATE is not as W3C has it and is left out; its value is not shown")
    return TraceContextTextMapPropagator().extract(carrier)


def _is_state(text: str) -> bool:
    members = [member for item in text.split(",") if (member := item.strip(" \t"))]
    return len(members) <= MOST_MEMBERS and all(MEMBER.fullmatch(member) for member in members)


def private_provider(
    resource: Resource, exporters: Sequence[SpanExporter], environ: Mapping[str, str]
) -> TracerProvider | None:
    """A tracer provider of our own; the global one belongs to the user's program. None where there is no exporter or
    the SDK refuses a variable of the environment."""
    if not exporters:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import DEFAULT_ON

    batches: dict[str, Any] = {
        argument: _positive(environ, name, default) for argument, (name, default) in BATCHES.items()
    }
    sampler = None if environ.get("OTEL_TRACES_SAMPLER", "").strip() else DEFAULT_ON
    try:
        provider = TracerProvider(sampler, resource, id_generator=UnseededIds(), shutdown_on_exit=False)
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter, **batches))
    except ValueError as error:
        logger.warning("no spans are exported, because a variable OTEL_BSP_* or OTEL_*_LIMIT is wrong: %s", error)
        return None
    return provider


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    """The SDK takes an empty variable for a wrong one, and prints a traceback of each."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and int(text[:10]) > 0 and len(text) <= 10:
        return int(text)
    logger.warning("%s=%r is not a positive integer; %d is used", name, one_line(text, 100), default)
    return default
