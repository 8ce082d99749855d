"""The benchmark of a step measures what it says: whole batches, and what is exported in the batch that it is from."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from benchmarks import loggers, stand_in, step_cost
from benchmarks.contender import BATCH, NOTHING, Contender, Turn, contend
from benchmarks.step_cost import Turns

MOST_CALLS = 160
"""Of our functions, and of others by ours, within one GRPO step on the training thread. With more of them a step has
become slower, which no test that takes the time could tell on a machine that is busy."""


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Contender]:
    with loggers.ours(tmp_path) as callback:
        yield Contender(loggers.OURS, callback, tmp_path)


def turns(*warm_us: float) -> Turns:
    found = Turns()
    for us in warm_us:
        found.add(Turn([us, us], [2 * us] * 2, 3 * us))
    return found


def test_a_pause_of_the_machine_makes_no_logger_a_slow_one() -> None:
    assert turns().next_batch() == turns(10.0, 10.0, 1e7).next_batch() == BATCH
    assert turns(1e7, 1e7, 10.0).next_batch() == step_cost.SLOW_BATCH


def test_figures_are_those_above_the_steps_without_a_logger() -> None:
    assert turns(40.0, 50.0, 60.0).figures(turns(7.0, 7.0, 7.0)) == (43.0, 53.0, 86.0, 129.0)


def test_a_process_takes_turns_until_it_may_leave(tmp_path: Path) -> None:
    here, there = multiprocessing.Pipe()
    for steps in (4, 2, 0):
        here.send(steps)
    try:
        contend(NOTHING, tmp_path, there)
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)
    assert here.recv() is None
    assert [(len(turn.warm_us), len(turn.cold_us)) for turn in (here.recv(), here.recv())] == [(2, 2), (1, 1)]


def test_a_turn_ends_with_all_of_its_steps_exported(ours: Contender) -> None:
    ours.turn()
    callback = ours.callbacks[0]
    assert isinstance(callback, AkkaTelemetryCallback)
    assert callback.telemetry is not None
    assert callback.telemetry._steps is not None
    assert callback.telemetry._steps.waiting() == 0
    assert callback.telemetry._steps.recorder.steps == BATCH


def test_a_step_calls_no_more_than_it_did(ours: Contender) -> None:
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
