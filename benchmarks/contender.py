"""One logger and a trainer of its own, in a process that they have for themselves: its side of `step_cost`."""

from __future__ import annotations

import gc
import hashlib
import logging
import time
import warnings
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from transformers import TrainerCallback

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from benchmarks import stand_in
from benchmarks.loggers import LOGGERS, TENSORBOARD, RowLogger

NOTHING = "no logger"
BATCH = 100
COMPUTE = bytes(5_000_000)
SETTLE_S = 0.05


class Turn(NamedTuple):
    """What the steps of a batch took, in microseconds."""

    warm_us: list[float]
    """Of the training thread, back to back."""
    cold_us: list[float]
    cpu_us: float
    """Of all threads, by step."""


class Contender:
    """One logger with a trainer of its own. It has its process for itself."""

    def __init__(self, name: str, callback: TrainerCallback | None, folder: Path) -> None:
        self.trainer = stand_in.own_class()(folder)
        self.callbacks = [] if callback is None else [callback]
        for found in self.callbacks:
            if hasattr(found, "attach"):
                found.attach(self.trainer)
            if not isinstance(found, RowLogger) and name != TENSORBOARD:
                stand_in.begin(self.trainer, [found])

    def turn(self, steps: int = BATCH) -> Turn:
        """Some steps, and what the logger's own threads do with them, so that the next one has the machine."""
        cpu_s, computing_s, cold_us = time.process_time(), 0.0, []
        warm_us = [self._step_us() for _ in range(steps // 2)]
        for _ in range(steps // 2):
            computing_s += compute()
            cold_us.append(self._step_us())
        for callback in self.callbacks:
            if isinstance(callback, AkkaTelemetryCallback):
                assert callback.telemetry is not None
                assert callback.telemetry.flush(60)
        time.sleep(SETTLE_S)
        return Turn(warm_us, cold_us, (time.process_time() - cpu_s - computing_s) / steps * 1e6)

    def _step_us(self) -> float:
        start = time.perf_counter()
        stand_in.step(self.trainer, self.callbacks)
        return (time.perf_counter() - start) * 1e6


def compute() -> float:
    """Some milliseconds in which other threads have the interpreter; returns this thread's CPU time."""
    cpu_s = time.thread_time()
    hashlib.sha256(COMPUTE).digest()
    return time.thread_time() - cpu_s


def contend(name: str, folder: Path, pipe: Connection) -> None:
    """The process of a contender: a turn for each number of steps that comes, up to a 0. Before the first it sends what
    keeps it from taking part, None where nothing does."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    try:
        logger = nullcontext() if name == NOTHING else LOGGERS[name](folder)
        with logger as callback:
            contender = Contender(name, callback, folder)
            contender.turn()
            gc.collect()
            gc.disable()
            pipe.send(None)
            while steps := pipe.recv():
                pipe.send(contender.turn(steps))
    except ImportError as error:
        pipe.send(error)
