"""The number of staged snapshots: read where it is kept, published by one telemetry of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.testing import telemetry_in_memory
from tests.common.checkpoints.conftest import Seen

PENDING = names.CHECKPOINT_PENDING


def shown(seen: Seen, telemetry: Telemetry) -> list[float | int | None]:
    """What the next export has."""
    before = len(seen.sink.series(PENDING))
    assert telemetry.flush(5)
    return [point.value for point in seen.sink.series(PENDING)[before:]]


def test_it_is_read_anew_at_every_export_until_it_is_closed(telemetry: Telemetry, seen: Seen) -> None:
    staged: list[str] = []
    with checkpoints.pending(lambda: len(staged)):
        assert shown(seen, telemetry) == [0]
        staged.append("snapshot")
        assert shown(seen, telemetry) == [1]
    assert shown(seen, telemetry) == []


def test_it_may_come_before_the_telemetry_and_outlive_it(seen: Seen, start: Callable[..., Telemetry]) -> None:
    with checkpoints.pending(lambda: 3):
        for _ in range(2):
            telemetry = start()
            assert shown(seen, telemetry) == [3]
            before = len(seen.sink.series(PENDING))
            telemetry.close()
            assert [point.value for point in seen.sink.series(PENDING)[before:]] == [3]


def test_several_add_up(telemetry: Telemetry, seen: Seen) -> None:
    with checkpoints.pending(lambda: 3), checkpoints.pending(lambda: 4):
        assert shown(seen, telemetry) == [7]


@pytest.mark.parametrize("broken", [lambda: 1 / 0, lambda: None, lambda: "many", lambda: -1, lambda: float("nan")])
def test_a_number_that_is_not_known_is_absent(
    broken: Callable[[], Any], telemetry: Telemetry, seen: Seen, failures: Any
) -> None:
    with checkpoints.pending(broken), checkpoints.pending(lambda: 2):
        assert shown(seen, telemetry) == []
    assert seen.sink.names(), "the other figures are there"


def test_one_telemetry_of_a_process_has_it(seen: Seen, start: Callable[..., Telemetry]) -> None:
    """Else a sum over the instances would count each snapshot several times."""
    worker, training = start(None, run_id="worker"), start()
    with checkpoints.pending(lambda: 1):
        assert (shown(seen, worker), shown(seen, training)) == ([], [1])
        with checkpoints.reporting() as reporting:
            assert reporting.telemetry is not None
            assert (shown(seen, training), shown(seen, reporting.telemetry)) == ([], [1])
        assert shown(seen, training) == [1]


def test_a_provider_that_is_handed_in_shows_it_too(no_telemetry: None, start: Callable[..., Telemetry]) -> None:
    with telemetry_in_memory() as memory:
        telemetry = start(meter_provider=memory.meter_provider, tracer_provider=memory.tracer_provider)
        with checkpoints.pending(lambda: 5):
            assert memory.latest(PENDING.name) == 5
        telemetry.close()
