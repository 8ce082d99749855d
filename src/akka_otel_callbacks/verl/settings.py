"""What verl's configuration, as a plain dict, says about the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.run.model_name import model_name, run_name
from akka_otel_callbacks.common.run.settings import relevant
from akka_otel_callbacks.common.run.settings_hash import settings_sha
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.verl.config import get

METHODS: Mapping[str, str] = {"gae": "PPO", "reinforce_plus_plus": "REINFORCE++", "optimal_token_baseline": "OTB"}
"""Advantage estimators whose name is not the method's. Any other goes by its own name in capitals."""
METHODS_BY_LOSS = frozenset({"gspo", "cispo", "sapo"})
"""Policy losses that are the method, whatever estimates the advantage."""

NO_HYPERPARAMETERS = frozenset(
    "trace ray_kwargs transfer_queue ray_wait_register_center_timeout skip esi_redundant_time use_shm"
    " disable_log_stats npu_profile filter_overlong_prompts_workers".split()
)
"""verl's keys that say nothing of what a run learns, beside those that any engine may have."""


def is_rl(config: Any) -> bool:
    return get(config, "actor_rollout_ref") is not None


def max_completion_length(config: Any) -> int | None:
    """Tokens at which an agent loop truncates a completion."""
    return get(config, "actor_rollout_ref.rollout.response_length") or get(config, "data.max_response_length")  # type: ignore[no-any-return]


def devices(config: Any) -> int | None:
    """Accelerators of the job: those of the trainer, and of rollout servers and a reward model that have their own.
    None on a CPU."""
    if get(config, "trainer.device") == "cpu":
        return None
    rollout = _pool(config, "actor_rollout_ref.rollout") or _pool(config, "rollout")  # the latter up to 0.8
    rewards = _pool(config, "reward.reward_model") if get(config, "reward.reward_model.enable_resource_pool") else 0
    return _pool(config, "trainer") + rollout + rewards or None


def planned_steps(config: Any, trainer: Any = None) -> float | None:
    """The number of the last step. A trainer that cannot be reached leaves it in its configuration, as the length of
    the optimizer's schedule: v1 trainers that update several times in a step count each update there.

    Args:
        config: verl's.
        trainer: a supervised trainer, which knows the number itself.
    """
    if trainer is not None:
        steps, updates = number(getattr(trainer, "total_training_steps", None)), 1.0
    else:
        steps = number(get(config, "actor_rollout_ref.actor.optim.total_training_steps"))
        mode = get(config, "trainer.v1.trainer_mode") if get(config, "trainer.use_v1", True) else None
        updates = number(get(config, f"trainer.v1.{mode}.parameter_sync_step")) or 1.0
    return steps / updates if steps and steps > 0 else None


def trainer_processes(config: Any, environ: Mapping[str, str] = os.environ) -> int | None:
    """Processes that train, one per device; torchrun says it better than the configuration."""
    world_size = environ.get("WORLD_SIZE", "")
    return int(world_size) if world_size.isdigit() else _pool(config, "trainer") or None


def run_attributes(config: Any) -> dict[Attribute, Any]:
    """What verl's configuration says of the run's identity. None for what it does not say."""
    rl = is_rl(config)
    model = get(config, "actor_rollout_ref.model" if rl else "model")
    return {
        names.ATTR_RUN_ENGINE: names.RunEngine.VERL,
        names.ATTR_RUN_METHOD: method(config),
        names.ATTR_RUN_NAME: run_name(get(config, "trainer.experiment_name")),
        names.ATTR_RUN_BASE_MODEL: model_name(get(model, "path") or get(model, "partial_pretrain")),
        names.ATTR_RUN_LEARNING_RATE: get(config, "actor_rollout_ref.actor.optim.lr" if rl else "optim.lr"),
        names.ATTR_RUN_LORA_RANK: lora_rank(config),
        names.ATTR_RUN_GROUP_SIZE: get(config, "actor_rollout_ref.rollout.n"),
        names.ATTR_RUN_SETTINGS_SHA: settings_sha(hyperparameters(config)),
    }


def lora_rank(config: Any) -> int | None:
    """The rank of the LoRA adapter. None if the whole model is trained."""
    model = get(config, "actor_rollout_ref.model" if is_rl(config) else "model")
    return get(model, "lora_rank") or get(model, "lora.rank") or None


def method(config: Any) -> str | None:
    """SFT, PPO, GRPO, GSPO …"""
    if not is_rl(config):
        return names.RunMethod.SFT
    loss = str(get(config, "actor_rollout_ref.actor.policy_loss.loss_mode"))
    if loss in METHODS_BY_LOSS:
        return loss.upper()
    estimator = get(config, "algorithm.adv_estimator")
    return METHODS.get(str(estimator), str(estimator).upper()) if estimator is not None else None


def hyperparameters(config: Any) -> Any:
    """The configuration without what does not change the training."""
    return relevant(config, NO_HYPERPARAMETERS)


def _pool(config: Any, path: str) -> int:
    return int(get(config, f"{path}.nnodes", 0)) * int(get(config, f"{path}.n_gpus_per_node", 0))
