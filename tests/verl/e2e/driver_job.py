"""A driver that has verl start trainings that train nothing: verl's `run_ppo`, a trainer that logs one step, a worker.

Arguments: `before` starts Ray as a user's program may, before verl does; every other is the learning rate of a training.
`VARIABLES` is a JSON object of variables that the user gives to Ray.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import ray
from omegaconf import OmegaConf

OPTIONS: dict[str, Any] = {"num_cpus": 40, "num_gpus": 1, "include_dashboard": False}
RUNTIME_ENV = {"env_vars": json.loads(os.environ.get("VARIABLES", "{}"))}
if "before" in sys.argv:
    ray.init(**OPTIONS, runtime_env=RUNTIME_ENV)

from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.main_ppo import run_ppo
from verl.utils.tracking import Tracking


class Actor(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def environment(self) -> dict[str, str]:
        return dict(os.environ)


@ray.remote
class Helper:
    def environment(self) -> dict[str, str]:
        return dict(os.environ)


@ray.remote
class TaskRunner:
    def run(self, config: Any) -> None:
        group = RayWorkerGroup(RayResourcePool([1]), RayClassWithInitArgs(ray.remote(Actor)), device_name="cpu")
        helper = Helper.remote()
        environments = [*group.environment(), ray.get(helper.environment.remote())]
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
            "ray_kwargs": {"ray_init": {**OPTIONS, "runtime_env": RUNTIME_ENV}},
        }
    )


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument != "before":
            run_ppo(configuration(float(argument)), task_runner_class=TaskRunner)
