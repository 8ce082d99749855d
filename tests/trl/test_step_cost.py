"""The benchmark of a step measures what it says: whole batches, and what is exported in the batch that it is from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from benchmarks import loggers, step_cost


@pytest.fixture
def contenders(tmp_path: Path) -> Iterator[list[step_cost.Contender]]:
    with loggers.ours(tmp_path) as callback, loggers.gauges(tmp_path) as gauges:
        given = {"no logger": None, loggers.OURS: callback, loggers.GAUGES: gauges}
        yield [step_cost.Contender(name, logger, tmp_path) for name, logger in given.items()]


def test_neither_a_slow_begin_nor_a_pause_makes_a_logger_a_slow_one(contenders: list[step_cost.Contender]) -> None:
    nothing = contenders[0]
    nothing.spent_s = 60.0
    nothing.forget()
    nothing.turn()
    assert len(nothing.microseconds) == len(nothing.cold_microseconds) == step_cost.BATCH // 2
    nothing.spent_s = 60.0
    nothing.microseconds = [10.0, 10.0, 1e7]
    nothing.turn()
    assert len(nothing.microseconds) == 3 + step_cost.BATCH // 2
    nothing.microseconds = [1e7]
    nothing.turn()
    assert len(nothing.microseconds) == 1 + 2


def test_a_turn_ends_with_all_of_its_steps_exported(contenders: list[step_cost.Contender]) -> None:
    ours = contenders[1]
    ours.turn()
    callback = ours.callbacks[0]
    assert isinstance(callback, AkkaTelemetryCallback)
    assert callback.telemetry is not None
    assert callback.telemetry._steps is not None
    assert callback.telemetry._steps.waiting() == 0
    assert callback.telemetry._steps.recorder.steps == step_cost.BATCH
