"""What one GRPO step's telemetry costs, beside other loggers: the training thread's time, and the CPU of all threads.

`python -m benchmarks.step_cost` runs every logger in turn, a batch of steps each, and takes the same steps without any
logger as zero. Each has a process of its own, as in a training that has it alone: what its threads do is counted as its
own, and as nobody else's. A step has all its events, four micro-batches, 32 rollouts with three reward terms, and a log
row of 28 keys. Half of a batch runs back to back. In the other half the process computes without the interpreter
between two steps, as a training does: other threads run, and what the step needs is in no cache any more. At the end of
a batch ours exports what it has. Ours publishes all figures of the step and both histograms; the others take the row's
28 scalars, and the bare gauges are not even exported. What a logger does in a further process (wandb) is not counted.
Loggers that are not installed are left out and named.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks import stand_in
from benchmarks.contender import BATCH, NOTHING, Turn, contend
from benchmarks.loggers import GAUGES, LOGGERS, OURS, OURS_OTLP, TENSORBOARD

SLOW_BATCH = 4
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


class Turns:
    """Those that a contender had so far."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []

    def add(self, turn: Turn) -> None:
        self._turns.append(turn)

    def spent_s(self) -> float:
        return (sum(self._all("warm_us")) + sum(self._all("cold_us"))) / 1e6

    def next_batch(self) -> int:
        """How many steps the next one has."""
        is_slow = bool(self._turns) and statistics.median(self._all("warm_us")) > SLOW_US
        return SLOW_BATCH if is_slow else BATCH

    def figures(self, zero: Turns) -> Figures:
        """What is above the steps without a logger."""
        warm_us, none_us = self._all("warm_us"), statistics.median(zero._all("warm_us"))
        return Figures(
            statistics.median(warm_us) - none_us,
            statistics.quantiles(warm_us, n=10)[-1] - none_us,
            statistics.median(self._all("cold_us")) - statistics.median(zero._all("cold_us")),
            self._cpu_us() - zero._cpu_us(),
        )

    def _all(self, part: str) -> list[float]:
        return [us for turn in self._turns for us in getattr(turn, part)]

    def _cpu_us(self) -> float:
        return statistics.median(turn.cpu_us for turn in self._turns)


class Seat:
    """A contender's process, as it is seen from outside.

    Raises:
        ImportError: the logger is not installed.
    """

    def __init__(self, name: str, folder: Path) -> None:
        processes = multiprocessing.get_context("spawn")
        self.name, self.turns = name, Turns()
        self._pipe, theirs = processes.Pipe()
        self._process = processes.Process(target=contend, args=(name, folder, theirs))
        self._process.start()
        theirs.close()
        if (error := self._pipe.recv()) is not None:
            raise error

    def take_turn(self) -> None:
        self._pipe.send(self.turns.next_batch())
        self.turns.add(self._pipe.recv())

    def leave(self) -> None:
        self._pipe.send(0)
        self._process.join()


def measure(seats: list[Seat], turns: int, seconds_each: float) -> dict[str, Figures]:
    """Takes turns, so that what the machine does meanwhile meets all of them, and the first contender as zero."""
    for _ in range(turns):
        for seat in seats:
            if seat.turns.spent_s() < seconds_each:
                seat.take_turn()
    return {seat.name: seat.turns.figures(seats[0].turns) for seat in seats[1:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=16, help=f"turns of each logger, of {BATCH} steps")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each logger, at most")
    options = parser.parse_args()

    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        seats: list[Seat] = []
        for number, name in enumerate((NOTHING, *LOGGERS)):
            folder = root / str(number)
            folder.mkdir()
            try:
                seats.append(Seat(name, folder))
            except ImportError as error:
                if name == OURS:
                    raise
                print(f"left out: {name} ({error})")
                continue
            stack.callback(seats[-1].leave)
        figures = measure(seats, options.turns, options.seconds)
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
