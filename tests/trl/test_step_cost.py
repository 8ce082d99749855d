"""The benchmark of a step measures what it says: whole batches, and what is exported in the batch that it is from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from benchmarks import loggers, stand_in, step_cost

MOST_CALLS = 225
"""Of our functions, and of others by ours, within one GRPO step on the training thread. With more of them a step has
become slower, which no test that takes the time could tell on a machine that is busy."""


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


def test_a_step_calls_no_more_than_it_did(contenders: list[step_cost.Contender]) -> None:
    ours = contenders[1]
    for _ in range(3):
        stand_in.step(ours.trainer, ours.callbacks)
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        of_ours = "akka_otel_callbacks" in frame.f_code.co_filename
        calls += of_ours and event in ("call", "c_call")

    sys.setprofile(count)
    try:
        stand_in.step(ours.trainer, ours.callbacks)
    finally:
        sys.setprofile(None)
    assert MOST_CALLS / 2 < calls <= MOST_CALLS
