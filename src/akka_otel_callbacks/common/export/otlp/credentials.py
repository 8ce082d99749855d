"""Credentials that another package supplies, by the variables that the SDK's exporters have for it."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from akka_otel_callbacks.common.export.otlp.settings import OtlpSettings

GROUP = "opentelemetry_otlp_credential_provider"
SuppliedT = TypeVar("SuppliedT")


def from_entry_point(settings: OtlpSettings, expected: type[SuppliedT]) -> SuppliedT | None:
    """Makes what the named entry point provides: a session for HTTP, channel credentials for gRPC. None if none is
    named."""
    if not settings.credentials:
        return None
    found = next(iter(entry_points(group=GROUP, name=settings.credentials)), None)
    if found is None:
        raise LookupError(f"no credential provider {settings.credentials!r} is installed")
    supplied = found.load()()
    if not isinstance(supplied, expected):
        raise TypeError(f"the credential provider {settings.credentials!r} makes no {expected.__name__}")
    return supplied
