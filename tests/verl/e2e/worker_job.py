"""A job of verl workers that train nothing: what a trainer does with its worker groups, as a program.

Its arguments are the loggers that the job asks for; `hook` loads the plugin through Ray instead of the entry point.
It reads commands from its input, one a line: `flush` has the workers export, anything else ends it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ray
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.single_controller.ray.base import create_colocated_worker_cls


class Actor(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def pid(self) -> int:
        return os.getpid()


class Critic(Worker):
    pass


def run(config: Any) -> None:
    """`config` is what the driver's hooks look for."""
    options: dict[str, Any] = {"num_cpus": 8, "num_gpus": 2, "include_dashboard": False}
    if "hook" in sys.argv:
        options["runtime_env"] = {"worker_process_setup_hook": "akka_otel_callbacks.verl.worker.setup_hook"}
    ray.init(**options)
    classes = {"actor_rollout": Actor, "critic": Critic}
    roles = {role: RayClassWithInitArgs(ray.remote(worker)) for role, worker in classes.items()}
    pool = RayResourcePool([2], max_colocate_count=1)
    group = RayWorkerGroup(pool, create_colocated_worker_cls(roles), device_name="cpu")
    actors = group.spawn(roles)["actor_rollout"]
    print(json.dumps({"pids": actors.pid(), "environments": actors.environment()}), flush=True)
    for line in sys.stdin:
        if line.strip() != "flush":
            break
        from akka_otel_callbacks.verl.driver.worker_groups import flush_workers

        flush_workers()
        print("flushed", flush=True)


if __name__ == "__main__":
    run(config={"trainer": {"logger": sys.argv[1:]}})
