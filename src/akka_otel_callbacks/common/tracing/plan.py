"""The job's span before it begins, so that processes which are made earlier can stand under it."""

from __future__ import annotations

from collections.abc import Mapping

from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.guard import guarded


def planned(environ: Mapping[str, str]) -> dict[str, str]:
    """The job's span before it begins, as `TRACEPARENT` and `TRACESTATE`: the IDs that `Telemetry.start` then gives it,
    and whether it is sampled. Empty if the environment asks for no spans.

    Args:
        environ: of the process that is to have the job's span.
    """
    return guarded(_planned)(environ) or {}


def _planned(environ: Mapping[str, str]) -> dict[str, str]:
    if not select(environ, "").traces:
        return {}
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import set_span_in_context

    from akka_otel_callbacks.common.tracing.parent import parent_context, variables
    from akka_otel_callbacks.common.tracing.provider import provider_without_exporters
    from akka_otel_callbacks.common.vocabulary import names
    from akka_otel_callbacks.common.vocabulary.scope import SCOPE

    provider = provider_without_exporters(Resource.get_empty(), environ)
    job = provider.get_tracer(SCOPE).start_span(names.SPAN_JOB.name, context=parent_context(environ))
    return variables(set_span_in_context(job))
