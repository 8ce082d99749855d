"""Where a process stands in a trace: reads and writes `TRACEPARENT` and `TRACESTATE` of its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from akka_otel_callbacks.common.log import logger

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext

MOST_MEMBERS = 32
MEMBER = re.compile(
    r"([a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
"""One entry of `TRACESTATE`, as W3C defines it."""


def parent_context(environ: Mapping[str, str]) -> Context:
    """The context that `TRACEPARENT` and `TRACESTATE` name; an empty one where they are missing or malformed. A
    malformed state is not handed to the SDK, which would log the members that it cannot use. They may hold anything."""
    carrier = {name: environ[name.upper()] for name in ("traceparent", "tracestate") if environ.get(name.upper())}
    if not _is_state(carrier.get("tracestate", "")):
        del carrier["tracestate"]
        logger.warning("TRACESTATE is malformed and left out. Its value is not shown")
    return TraceContextTextMapPropagator().extract(carrier)


def _is_state(text: str) -> bool:
    members = [member for item in text.split(",") if (member := item.strip(" \t"))]
    return len(members) <= MOST_MEMBERS and all(MEMBER.fullmatch(member) for member in members)


def span_of(environ: Mapping[str, str]) -> SpanContext:
    """The span that they name; one that is not valid where they name none."""
    from opentelemetry.trace import get_current_span

    return get_current_span(parent_context(environ)).get_span_context()


def variables(context: Context) -> dict[str, str]:
    """A context as these variables. Empty where nothing is traced."""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, context)
    return {name.upper(): value for name, value in carrier.items()}
