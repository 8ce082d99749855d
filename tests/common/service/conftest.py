from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from akka_otel_callbacks.service import ServiceState, ServiceTelemetry
from tests.support.otlp_sink import OtlpSink, otlp_sink

Serve = Callable[..., ServiceTelemetry]


@pytest.fixture
def sink(environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    """A collector, which the environment names."""
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.http)
        yield opened


@pytest.fixture
def serve(environment: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a service's telemetry; whatever a test leaves open is closed."""
    opened: list[ServiceTelemetry] = []

    def open_one(state: Callable[[], ServiceState] = ServiceState, **options: object) -> ServiceTelemetry:
        opened.append(ServiceTelemetry(state, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for telemetry in opened:
        telemetry.close()
