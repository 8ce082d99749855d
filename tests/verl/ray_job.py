"""A driver on a real Ray that it started by itself, without verl: what its trainings' processes are given.

Each argument is a training: the learning rate, and after an `@` the name that the user gives to the run by then.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ray
import ray.actor

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl import ray_calls

KEPT = ("AKKA_OTEL_RUN", "AKKA_FOREIGN_SECRET", "OTEL_SERVICE_NAME", "OTEL_EXPORTER_OTLP_ENDPOINT", "RANK", "USERS")


def hook() -> None:
    """What the plugin does where verl is imported."""
    ray_calls.install_actors(ray.actor)


@ray.remote(num_cpus=0)
class Worker:
    def made_with(self) -> dict[str, Any]:
        hook()
        server = Server.remote()  # type: ignore[attr-defined]
        return {**variables(), "folder": os.listdir("."), "server": ray.get(server.variables.remote())}


@ray.remote(num_cpus=0)
class Server:
    def variables(self) -> dict[str, str]:
        return variables()


@ray.remote(num_cpus=0)
class TaskRunner:
    def run(self, config: Any) -> list[dict[str, Any]]:
        hook()
        ranked = [{"runtime_env": {"env_vars": {"RANK": str(rank)}}} for rank in range(2)]
        workers = [Worker.options(**options).remote() for options in ranked]  # type: ignore[attr-defined]
        return ray.get([worker.made_with.remote() for worker in workers])


def variables() -> dict[str, str]:
    return {name: os.environ[name] for name in KEPT if name in os.environ}


def run_ppo(config: Any) -> list[dict[str, Any]]:
    runner = TaskRunner.remote()  # type: ignore[attr-defined]
    return ray.get(runner.run.remote(config))


if __name__ == "__main__":
    users = {"USERS": "1", "OTEL_SERVICE_NAME": "theirs"}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env={"working_dir": sys.argv[1], "env_vars": users})
    hook()
    os.environ |= {  # after Ray has started: its processes know them from nobody else
        "OTEL_RESOURCE_ATTRIBUTES": "team=red,k8s.cluster.name=c,k8s.pod.name=of-driver",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
        "OTEL_SERVICE_NAME": "drivers",
        "AKKA_FOREIGN_SECRET": "hunter2",
    }
    told = []
    for argument in sys.argv[2:]:
        rate, _, name = argument.partition("@")
        if name:
            os.environ["OTEL_RESOURCE_ATTRIBUTES"] += f",{names.ATTR_RUN_ID.name}={name}"
        actor = {"optim": {"lr": float(rate)}}
        told.append(run_ppo({"trainer": {"logger": ["akka_otel"]}, "actor_rollout_ref": {"actor": actor}}))
    print("told " + json.dumps(told))
