"""What timing a reward function costs the training thread: `python -m benchmarks.reward_calls`.

A reward call is what TRL does around a reward function: it enters a region of its profiler, calls the function, and
leaves. A batch is scored by one function, and by three, which share what begins and ends a batch. Calls with the region
heard and calls with TRL's own alone take turns, a few at a time, so that both meet the same machine. The clock is the
thread's own processor time. What is shown is the difference of the medians, and of the least times, which a busy
machine changes less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from types import SimpleNamespace
from typing import Any

from trl.extras import profiling

from akka_otel_callbacks.trl.scoring import Scorings, tap_regions

BATCHES, FUNCTIONS, TARGET_US = 20, (1, 3), 2.0


class Trainer:
    """As much of one as a region asks for."""

    def __init__(self, functions: int) -> None:
        self.args = SimpleNamespace(report_to=[])
        self.state = SimpleNamespace(global_step=1)
        self.accelerator = SimpleNamespace(is_main_process=True)
        self.reward_func_names = [f"reward_{at}" for at in range(functions)]
        self.reward_funcs = [reward] * functions


def reward() -> None: ...


def call_us(region: Any, trainer: Trainer, scorings: Scorings | None) -> float:
    """Microseconds of a reward call, with its share of what begins and ends a batch."""
    begin = time.thread_time()
    for _ in range(BATCHES):
        if scorings is not None:
            scorings.begin()
        for name in trainer.reward_func_names:
            with region(trainer, name):
                reward()
        if scorings is not None:
            scorings.end(8)
    return (time.thread_time() - begin) / BATCHES / len(trainer.reward_funcs) * 1e6


def compare(trainer: Trainer, plain: Any, turns: int) -> None:
    scorings = Scorings(trainer, trainer.reward_func_names)
    alone, heard = [], []
    for turn in range(turns):
        for is_heard in (turn % 2 == 0, turn % 2 == 1):
            if is_heard:
                heard.append(call_us(profiling.profiling_context, trainer, scorings))
            else:
                alone.append(call_us(plain, trainer, None))
    for what, of in (("median", statistics.median), ("least", min)):
        cost = of(heard) - of(alone)
        print(f"  {what}: a region of TRL's {of(alone):.2f} us, heard {of(heard):.2f} us; timing costs {cost:.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3000)
    turns = parser.parse_args().turns
    plain = profiling.profiling_context
    tap_regions()
    for functions in FUNCTIONS:
        print(f"reward functions in a batch: {functions}")
        compare(Trainer(functions), plain, turns)
    print(f"target {TARGET_US} us")


if __name__ == "__main__":
    main()
