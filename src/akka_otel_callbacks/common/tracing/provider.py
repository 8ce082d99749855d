"""A tracer provider of our own, with the exporters that the environment asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.tracing.ids import UnseededIds

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator

T = TypeVar("T")

BATCHES = {
    "max_queue_size": ("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
    "schedule_delay_millis": ("OTEL_BSP_SCHEDULE_DELAY", 5000),
    "max_export_batch_size": ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
    "export_timeout_millis": ("OTEL_BSP_EXPORT_TIMEOUT", 30_000),
}
"""How the SDK gathers spans: its argument, its variable and its default."""


def private_provider(
    resource: Resource,
    exporters: Sequence[SpanExporter],
    environ: Mapping[str, str],
    ids: IdGenerator | None = None,
) -> TracerProvider | None:
    """A tracer provider of our own; the global one belongs to the user's program. None where there is no exporter or
    the SDK refuses a variable of the environment."""
    if not exporters:
        return None
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    batches: dict[str, Any] = {
        argument: _positive(environ, name, default) for argument, (name, default) in BATCHES.items()
    }
    try:
        provider = provider_without_exporters(resource, environ, ids)
        for exporter in exporters:
            provider.add_span_processor(unwatched(BatchSpanProcessor, exporter, **batches))
    except ValueError as error:
        logger.warning("no spans are exported, because a variable OTEL_BSP_* or OTEL_*_LIMIT is wrong: %s", error)
        return None
    return provider


def provider_without_exporters(
    resource: Resource, environ: Mapping[str, str], ids: IdGenerator | None = None
) -> TracerProvider:
    """A provider that exports nothing yet. The environment decides which traces it samples.

    Raises:
        ValueError: a variable with a limit of spans is wrong.
    """
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import DEFAULT_ON

    sampler = None if environ.get("OTEL_TRACES_SAMPLER", "").strip() else DEFAULT_ON
    ids = ids or UnseededIds()
    return unwatched(TracerProvider, sampler, resource, id_generator=ids, shutdown_on_exit=False)


def unwatched(make: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """One of the SDK's objects, without metrics of itself. Newer versions would look up the global meter provider for
    them. Where `OTEL_PYTHON_METER_PROVIDER` names one, that look sets it, and the program's own is then refused."""
    from opentelemetry.metrics import NoOpMeterProvider

    if "meter_provider" in signature(make).parameters:
        kwargs["meter_provider"] = NoOpMeterProvider()
    return make(*args, **kwargs)


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    """A variable as a positive integer. The SDK takes an empty variable for a wrong one, and prints a traceback for
    each wrong one."""
    text = environ.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdigit() and int(text[:10]) > 0 and len(text) <= 10:
        return int(text)
    logger.warning("%s=%r is not a positive integer; %d is used", name, one_line(text, 100), default)
    return default
