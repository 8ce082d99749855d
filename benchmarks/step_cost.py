"""What one GRPO step's telemetry costs, beside other loggers: the training thread's time, and the CPU of all threads.

`python -m benchmarks.step_cost` runs every logger in turn, a batch of steps each, in one process, and takes the same
steps without any logger as zero. A step has all its events, four micro-batches, 32 rollouts with three reward terms,
and a log row of 28 keys. Half of a batch runs back to back. In the other half the process computes without the
interpreter between two steps, as a training does: other threads run, and what the step needs is in no cache any more.
At the end of a batch ours exports what it has. Ours publishes all figures of the step and both histograms; the others
take the row's 28 scalars, and the bare gauges are not even exported. What a logger does in a process of its own (wandb)
is not counted. Loggers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from transformers import TrainerCallback

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from benchmarks import stand_in
from benchmarks.loggers import GAUGES, LOGGERS, OURS, OURS_OTLP, TENSORBOARD, RowLogger

BATCH = 100
COMPUTE = bytes(5_000_000)
SETTLE_S = 0.05
SLOW_US = 1e3
"""A logger whose steps mostly take longer gets fewer of them in a turn. By the mean, a machine that stops a thread now
and then would make every logger a slow one."""
TARGET_STEP_US = 60.0
TARGETS = {
    ("training thread", GAUGES): 1 / 3,
    ("training thread", TENSORBOARD): 1 / 10,
    ("all threads", GAUGES): 3.0,
}
"""Ours as a share of the other's."""
PARTS: dict[str, Callable[..., float]] = {
    "training thread": lambda figures: figures.thread_us,
    "all threads": lambda figures: figures.cpu_us,
}


class Figures(NamedTuple):
    """Of one step, in microseconds."""

    thread_us: float
    """Of the training thread, back to back."""
    thread_p90_us: float
    cold_us: float
    """After a computation."""
    cpu_us: float
    """Of all threads."""


class Contender:
    """One logger with a trainer of its own, and the times of its steps."""

    def __init__(self, name: str, callback: TrainerCallback | None, folder: Path) -> None:
        self.name, self.trainer = name, stand_in.own_class()(folder)
        self.callbacks = [] if callback is None else [callback]
        self.forget()
        for found in self.callbacks:
            if hasattr(found, "attach"):
                found.attach(self.trainer)
            if not isinstance(found, RowLogger) and name != TENSORBOARD:
                stand_in.begin(self.trainer, [found])

    def forget(self) -> None:
        self.spent_s = 0.0
        self.microseconds: list[float] = []
        self.cold_microseconds: list[float] = []
        self.cpu_microseconds: list[float] = []

    def turn(self) -> None:
        """A batch of steps, and what the logger's own threads do with it, so that the next one has the machine."""
        is_slow = bool(self.microseconds) and statistics.median(self.microseconds) > SLOW_US
        steps = 2 if is_slow else BATCH // 2
        cpu_s, computing_s = time.process_time(), 0.0
        self.microseconds += [self._step_us() for _ in range(steps)]
        for _ in range(steps):
            computing_s += compute()
            self.cold_microseconds.append(self._step_us())
        for callback in self.callbacks:
            if isinstance(callback, AkkaTelemetryCallback):
                assert callback.telemetry is not None
                assert callback.telemetry.flush(60)
        time.sleep(SETTLE_S)
        self.cpu_microseconds.append((time.process_time() - cpu_s - computing_s) / steps / 2 * 1e6)

    def _step_us(self) -> float:
        start = time.perf_counter()
        stand_in.step(self.trainer, self.callbacks)
        took_s = time.perf_counter() - start
        self.spent_s += took_s
        return took_s * 1e6

    def figures(self, zero: Contender) -> Figures:
        none_us = statistics.median(zero.microseconds)
        return Figures(
            statistics.median(self.microseconds) - none_us,
            statistics.quantiles(self.microseconds, n=10)[-1] - none_us,
            statistics.median(self.cold_microseconds) - statistics.median(zero.cold_microseconds),
            statistics.median(self.cpu_microseconds) - statistics.median(zero.cpu_microseconds),
        )


def compute() -> float:
    """Some milliseconds in which other threads have the interpreter; returns this thread's CPU time."""
    cpu_s = time.thread_time()
    hashlib.sha256(COMPUTE).digest()
    return time.thread_time() - cpu_s


def measure(contenders: list[Contender], turns: int, seconds_each: float) -> dict[str, Figures]:
    """Takes turns, so that what the machine does meanwhile meets all of them, and the first contender as zero."""
    for contender in contenders:
        contender.turn()
        contender.forget()
    gc.collect()
    gc.disable()
    try:
        for _ in range(turns):
            for contender in contenders:
                if contender.spent_s < seconds_each:
                    contender.turn()
    finally:
        gc.enable()
    return {contender.name: contender.figures(contenders[0]) for contender in contenders[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=16, help=f"turns of each logger, of {BATCH} steps")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each logger, at most")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = [Contender("no logger", None, root / "nothing")]
        for number, (name, logger) in enumerate(LOGGERS.items()):
            folder = root / str(number)
            folder.mkdir()
            try:
                callback = stack.enter_context(logger(folder))
            except ImportError as error:
                if name == OURS:
                    raise
                print(f"left out: {name} ({error})")
                continue
            contenders.append(Contender(name, callback, folder))
        figures = measure(contenders, options.turns, options.seconds)
    show(figures)


def show(figures: dict[str, Figures]) -> None:
    print(
        f"\nOne GRPO step ({stand_in.LOG_KEYS} log keys, {stand_in.ROLLOUTS} rollouts, {len(stand_in.TERMS)} reward "
        f"terms), Python {sys.version.split()[0]}\n"
    )
    heads = ("training thread", "90 %", "after computing", "all threads, CPU")
    print(f"{'':34}" + "".join(f"{head:>20}" for head in heads))
    for name, figure in figures.items():
        print(f"{name:34}" + "".join(f"{value:17.1f} µs" for value in figure))
    print()
    for ours in (OURS, OURS_OTLP):
        mine = figures[ours]
        print(f"{ours}:")
        target("training thread, µs", mine.thread_us, TARGET_STEP_US)
        for (what, other), share in TARGETS.items():
            if other in figures:
                target(f"{what}, share of {other}", PARTS[what](mine) / PARTS[what](figures[other]), share)


def target(name: str, value: float, limit: float) -> None:
    print(f"{'reached' if value <= limit else 'MISSED '}  {name}: {value:.3g}, target at most {limit:.3g}")


if __name__ == "__main__":
    main()
