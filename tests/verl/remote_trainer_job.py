"""A driver on a real Ray, without verl, whose trainer is an actor that its task runner makes. The first argument is the
file in which the trainer's backend writes how it was ended. Each other one is a training, and says where it fails."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import ray
import ray.actor

from akka_otel_callbacks.verl import ray_calls, state

CONFIG = {"trainer": {"logger": ["akka_otel"]}}


class InjectedError(Exception):
    """What a job fails with."""


def fail() -> None:
    raise InjectedError("the data")


class Backend:
    """Stands in for the run's telemetry."""

    def __init__(self, path: str) -> None:
        self.path = path

    def finish(self, error: BaseException | None = None) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{type(error).__name__}: {error}\n")


@ray.remote(num_cpus=0)
class FullyAsyncTrainer:
    def __init__(self, path: str) -> None:
        state.STATE.backends[Backend(path)] = set()  # type: ignore[index, assignment]

    async def init_workers(self, fails: bool) -> None:
        if fails:
            fail()

    async def fit(self, fails: bool, seconds: float) -> None:
        if fails:
            fail()
        await asyncio.sleep(seconds)


@ray.remote(num_cpus=0)
class FullyAsyncRollouter:
    async def fit(self, where: str) -> None:
        if where == "rollouter":
            fail()
        if where == "death":
            os._exit(1)


@ray.remote(num_cpus=0)
class FullyAsyncTaskRunner:
    def run(self, config: Any, where: str, path: str) -> None:
        """As verl does it: what fails first ends the other."""
        ray_calls.install_actors(ray.actor)
        trainer = FullyAsyncTrainer.remote(path)  # type: ignore[attr-defined]
        ray.get(trainer.init_workers.remote(where == "begin"))
        rollouter = FullyAsyncRollouter.remote()  # type: ignore[attr-defined]
        waits_s = 60 if where in ("rollouter", "death") else 0
        left = [rollouter.fit.remote(where), trainer.fit.remote(where == "trainer", waits_s)]
        while left:
            (done,), left = ray.wait(left, num_returns=1)
            try:
                ray.get(done)
            except Exception:
                for other in left:
                    ray.cancel(other)
                raise


def run_ppo(config: Any, where: str, path: str) -> None:
    runner = FullyAsyncTaskRunner.remote()  # type: ignore[attr-defined]
    ray.get(runner.run.remote(config, where, path))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    ray_calls.install_actors(ray.actor)
    for where in sys.argv[2:]:
        try:
            run_ppo(CONFIG, where, sys.argv[1])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            print(f"{where} raised {type(error).__name__}")
