"""Points of a series have times that grow, whatever happens to the system's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from operator import attrgetter

import pytest

from akka_otel_callbacks.common import clock
from akka_otel_callbacks.common.clock import Clock
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from tests.common.reports import Report, grpo_step
from tests.support.otlp_sink import otlp_sink

HOUR_NS = 3600 * 10**9


class SystemClock:
    """The system's clock, set forward by so much."""

    def __init__(self) -> None:
        self._true_ns, self.set_by_ns = time.time_ns, 0

    def __call__(self) -> int:
        return self._true_ns() + self.set_by_ns


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[SystemClock]:
    system = SystemClock()
    monkeypatch.setattr(clock.time, "time_ns", system)
    yield system
    monkeypatch.undo()


def test_it_follows_a_clock_that_is_set_forward_and_not_one_that_is_set_back(system: SystemClock) -> None:
    ours = Clock()
    system.set_by_ns = HOUR_NS
    ahead_ns = ours.now_ns()
    assert abs(ahead_ns - system()) < HOUR_NS / 60
    system.set_by_ns = 0
    time.sleep(0.01)
    assert 0.01e9 <= ours.now_ns() - ahead_ns < HOUR_NS / 60


def test_an_earlier_reading_has_the_time_that_it_was_then(system: SystemClock) -> None:
    ours = Clock()
    reading_ns, then_ns = time.monotonic_ns(), system()
    time.sleep(0.01)
    system.set_by_ns = -HOUR_NS
    assert abs(ours.unix_ns(reading_ns) - then_ns) < HOUR_NS / 60
    assert ours.now_ns() - ours.unix_ns(reading_ns) >= 0.01e9


def test_times_of_a_series_grow_when_the_clock_is_set_back(
    system: SystemClock, environment: pytest.MonkeyPatch, start: Callable[..., Telemetry]
) -> None:
    ours = Clock()
    for module in ("recording.recorder", "export.own", "export.producer"):
        environment.setattr(f"akka_otel_callbacks.common.{module}.now_ns", ours.now_ns)
    environment.setattr("akka_otel_callbacks.common.recording.translator.unix_ns", ours.unix_ns)
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        telemetry = start()
        for number in range(1, 7):
            telemetry.capture(Report(grpo_step(number)), step=True)
            if number % 2:
                assert telemetry.flush(10)
            if number == 3:
                system.set_by_ns = -HOUR_NS
        telemetry.close()
        points = sink.metrics()
    assert [value for value, _ in groupby(p.value for p in points if p.name == names.RL_STEP_REWARD.name)] == [
        grpo_step(number).reward for number in range(1, 7)
    ]
    key = attrgetter("name", "attributes")
    for one, other in ((a, b) for a, b in pairwise(sorted(points, key=lambda p: repr(key(p)))) if key(a) == key(b)):
        assert one.time_ns < other.time_ns, one.name
    assert all(point.start_ns < point.time_ns for point in points)
