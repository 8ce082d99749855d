"""A driver that has verl start trainings that train nothing: verl's `run_ppo`, a trainer that logs one step, a worker.

It starts Ray before verl does, as a user's program may. Its arguments are a training each: the learning rate, and after
an `@` the name that the user gives to the run by then.
`VARIABLES` is a JSON object of variables that the user gives to Ray.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ray
from omegaconf import OmegaConf

from akka_otel_callbacks.common import names

OPTIONS: dict[str, Any] = {"num_cpus": 40, "num_gpus": 4, "include_dashboard": False}
RUNTIME_ENV = {"env_vars": json.loads(os.environ.get("VARIABLES", "{}"))}
ray.init(**OPTIONS, runtime_env=RUNTIME_ENV)

from verl.single_controller.base import Worker  # noqa: E402 - a user's program starts Ray first
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402 - a user's program starts Ray first
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402 - a user's program starts Ray first
from verl.trainer.main_ppo import run_ppo  # noqa: E402 - a user's program starts Ray first
from verl.utils.tracking import Tracking  # noqa: E402 - a user's program starts Ray first


class Actor(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self) -> dict[str, str]:
        return dict(os.environ)


@ray.remote
class TaskRunner:
    def run(self, config: Any) -> None:
        group = RayWorkerGroup(RayResourcePool([1]), RayClassWithInitArgs(ray.remote(Actor)), device_name="cpu")
        environments = group.environment()
        tracking = Tracking("p", "e", config.trainer.logger, OmegaConf.to_container(config, resolve=True))
        tracking.log({"training/global_step": 1, "critic/score/mean": config.reward_mean}, step=1)
        tracking.finish()
        print("told " + json.dumps(environments), flush=True)


def configuration(rate: float) -> Any:
    return OmegaConf.create(
        {
            "actor_rollout_ref": {
                "rollout": {"full_determinism": False, "n": 4},
                "actor": {"optim": {"lr": rate}},
                "model": {"path": "org/model"},
            },
            "algorithm": {"adv_estimator": "grpo"},
            "reward": {"reward_model": {"enable": False, "rollout": {"full_determinism": False}}},
            "reward_mean": rate * 100,
            "trainer": {"logger": ["akka_otel"], "device": "cpu", "nnodes": 1, "n_gpus_per_node": 1},
            "transfer_queue": {"enable": False},
            "global_profiler": {"tool": None},
            "ray_kwargs": {},
        }
    )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        rate, _, name = argument.partition("@")
        if name:
            os.environ["OTEL_RESOURCE_ATTRIBUTES"] += f",{names.ATTR_RUN_ID.name}={name}"
        run_ppo(configuration(float(rate)), task_runner_class=TaskRunner)
