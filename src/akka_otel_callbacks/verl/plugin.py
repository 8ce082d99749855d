"""The plugin that verl loads in each of its processes: hooks for verl's modules, and nothing heavy.

verl 0.9 finds it by its `verl.plugins` entry point; 0.6 to 0.8 load it with
`VERL_USE_EXTERNAL_MODULES=akka_otel_callbacks.verl.plugin`. Every hook does nothing in a run that did not ask for
`akka_otel`. With `AKKA_OTEL_DISABLE=1` only the word is taken, so that the same command trains without telemetry, and
the job's processes learn of the variable.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.patching.calls import out_of_reach
from akka_otel_callbacks.common.patching.imports import after_import
from akka_otel_callbacks.common.switches import EVERYTHING, is_off


class Hook:
    """Our function that changes one of verl's modules, and the figures that are absent without it."""

    # A NamedTuple or a dataclass writes and compiles code of its own, in each of verl's processes.
    __slots__ = ("gives", "install", "module")

    def __init__(self, module: str, install: str, gives: str) -> None:
        self.module = module
        self.install = install
        self.gives = gives


IDENTITY = "identity and OTEL_* variables in the workers"
LAST_INTERVAL = "the last interval of the workers' figures"
LAST = "the last figures of a trainer that Ray kills at its end"
OWN_STEP = "which step a rollout belongs to"
ROLLOUTS = "reward spread and terms, zero share, zero-variance groups, truncated share, rollout histograms"
GROUPS = "groups of the v1 trainers, and terms of a reward model on their devices"
TERMS = "reward terms and tools of the v1 trainers"
TOOLS = "tool calls and failures"
GRADERS = "how long reward terms take, their failures and tokens"
PER_TOKEN = "entropy and KL divergence per token, where the run does not aggregate its loss by `token-mean`"
PENALTY = "KL divergence of a penalty on the rewards"
VALIDATIONS = "spans of validations"
MEMORY = "what fills the devices of the workers"
HOOKS = (
    Hook("verl.utils.tracking", "driver.tracking:install", "everything: the logger `akka_otel`"),
    Hook("ray", "ray_calls:install", IDENTITY),
    Hook("ray.actor", "ray_calls:install_actors", IDENTITY),
    Hook("verl.single_controller.base.worker", "worker.process:install", "placement of the workers"),
    Hook("verl.single_controller.ray.base", "driver.worker_groups:install", LAST_INTERVAL),
    Hook("verl.trainer.ppo.ray_trainer", "driver.tracking:install_fit", LAST),
    Hook("verl.experimental.one_step_off_policy.ray_trainer", "driver.tracking:install_fit", LAST),
    Hook("verl.trainer.sft_trainer", "driver.tracking:install_fit", LAST),
    Hook("verl.trainer.sft_trainer_ray", "driver.tracking:install_fit", LAST),
    Hook("verl.trainer.ppo.metric_utils", "driver.batches:install", ROLLOUTS),
    Hook("verl.trainer.ppo.v1.trainer_base", "driver.batches:install_v1", GROUPS),
    Hook("transfer_queue", "rollout.tags:install", TERMS),
    Hook("verl.experimental.separation.ray_trainer", "driver.batches:install_separation", OWN_STEP),
    Hook("verl.trainer.ppo.core_algos", "worker.clip_ratio:install", "clip ratio by side"),
    Hook("verl.trainer.ppo.core_algos", "driver.per_token:install", PER_TOKEN),
    Hook("verl.workers.utils.losses", "driver.per_token:install_loss", PER_TOKEN),
    Hook("verl.trainer.ppo.ray_trainer", "driver.per_token:install_penalty", PENALTY),
    Hook("verl.utils.profiler.performance", "driver.timers:install", "spans of steps and phases"),
    Hook("verl.trainer.ppo.ray_trainer", "driver.validation:install", VALIDATIONS),
    Hook("verl.trainer.ppo.v1.trainer_base", "driver.validation:install", VALIDATIONS),
    Hook("verl.workers.engine.base", "worker.memory:install", MEMORY),
    Hook("verl.workers.engine_workers", "worker.memory:install_marks", MEMORY),
    Hook("verl.experimental.agent_loop.tool_agent_loop", "rollout.tool_calls:install", TOOLS),
    Hook("verl.experimental.agent_loop.agent_loop", "rollout.tool_calls:install_worker", TOOLS),
    Hook("verl.experimental.reward_loop.reward_loop", "rollout.grading:install", GRADERS),
    Hook("verl.experimental.reward_loop.reward_loop", "driver.reward_model:install_scores", GRADERS),
    Hook("verl.trainer.ppo.reward", "rollout.grading:install_functions", GRADERS),
    Hook("verl.experimental.reward_loop.reward_manager.remote", "rollout.remote_grading:install", GRADERS),
    Hook("transfer_queue", "rollout.stopping:install", "the end of a job of the v1 trainers whose judge gave up"),
    Hook("vllm.v1.engine.async_llm", "rollout.vllm:install", "the run's labels on the rollout servers' own metrics"),
)
EVEN_DISABLED = ("verl.utils.tracking", "ray", "ray.actor")

failed: dict[Hook, Exception] = {}
"""Hooks for which this verl lacks the function, with the error."""
bypassed: dict[Hook, list[str]] = {}
"""Hooks of functions that were copied before the plugin was loaded, and who calls such a copy."""


def install(hook: Hook, module: ModuleType) -> None:
    """Runs one hook. A failure costs the hook's figures, never the import that it runs in."""
    known = len(out_of_reach)
    try:
        ours, function = hook.install.split(":")
        getattr(importlib.import_module(f"akka_otel_callbacks.verl.{ours}"), function)(module)
    except Exception as error:  # noqa: BLE001 - another version of verl may differ in any way
        failed[hook] = error
    if len(out_of_reach) > known:
        bypassed[hook] = out_of_reach[known:]


def install_all(hooks: Sequence[Hook], module: ModuleType) -> None:
    for hook in hooks:
        install(hook, module)


def warn_of_failed() -> None:
    """Warns of hooks that this verl has no function for, and of callers that bypass a hook, with the absent figures."""
    if failed:
        verl = sys.modules.get("verl")
        logger.warning(
            "verl %s lacks what %d hooks of the plugin need. Absent: %s",
            getattr(verl, "__version__", "(unknown)"),
            len(failed),
            "; ".join(f"{hook.gives} ({hook.module}: {error})" for hook, error in failed.items()),
        )
    if bypassed:
        logger.warning(
            "modules that were imported before the plugin hold copies of verl's functions that it cannot replace. "
            "Import `akka_otel_callbacks.verl.plugin` before them. Absent where the copies are called: %s",
            "; ".join(f"{hook.gives} ({', '.join(who)})" for hook, who in bypassed.items()),
        )


wanted = [hook for hook in HOOKS if not is_off(EVERYTHING, os.environ) or hook.module in EVEN_DISABLED]
by_module = {name: [hook for hook in wanted if hook.module == name] for name in {hook.module for hook in wanted}}
after_import({name: functools.partial(install_all, hooks) for name, hooks in by_module.items()})
