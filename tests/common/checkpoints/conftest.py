from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Histogram, Point, SpanRecord

SPAN = f"{names.SPAN_CHECKPOINT_OPERATION.name}."


@pytest.fixture
def sink(environment: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    """A collector, which the environment names."""
    with otlp_sink() as opened:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", opened.http)
        yield opened


@pytest.fixture
def no_telemetry() -> None:
    """No test before has left one open."""
    assert checkpoints.environment() == {}


@dataclass
class Seen:
    """What a collector has of the checkpoints of closed telemetries."""

    sink: OtlpSink

    def durations(self, **attributes: Any) -> Histogram | None:
        return self._histogram(names.CHECKPOINT_OPERATION_DURATION, attributes)

    def sizes(self, **attributes: Any) -> Histogram | None:
        return self._histogram(names.CHECKPOINT_TRANSFER_SIZE, attributes)

    def series(self) -> list[dict[str, Any]]:
        """The attributes of each series of durations, without their common beginning."""
        points = self.sink.series(names.CHECKPOINT_OPERATION_DURATION)
        return [dict(found) for found in dict.fromkeys(tuple(sorted(short(point).items())) for point in points)]

    def span(self, operation: str) -> SpanRecord:
        (found,) = self.spans(operation)
        return found

    def spans(self, operation: str = "") -> list[SpanRecord]:
        return [span for span in self.sink.spans() if span.name.startswith(SPAN + operation)]

    def job(self) -> SpanRecord:
        (found,) = (span for span in self.sink.spans() if span.name == names.SPAN_JOB.name)
        return found

    def _histogram(self, metric: Any, attributes: dict[str, Any]) -> Histogram | None:
        found = [point for point in self.sink.series(metric) if attributes.items() <= short(point).items()]
        return found[-1].histogram if found else None


def short(point: Point | SpanRecord) -> dict[str, Any]:
    prefix = SPAN
    return {name.removeprefix(prefix).replace(".", "_"): value for name, value in point.attributes.items()}


@pytest.fixture
def seen(sink: OtlpSink, no_telemetry: None) -> Seen:
    return Seen(sink)


@pytest.fixture
def telemetry(seen: Seen, start: Any) -> Telemetry:
    """The run's, to a collector."""
    return start()
