"""The recipes: which of verl's programs each one runs, with which settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

Settings = Mapping[str, Any]


class Launcher(Enum):
    """How a recipe's program is started."""

    PYTHON = "python"
    TORCHRUN = "torchrun"
    CLUSTER = "cluster"
    """It calls `ray.init()` without arguments, so a cluster with enough logical devices must run beforehand."""


@dataclass(frozen=True)
class Recipe:
    """One of verl's programs and its settings, as dotted keys of verl's configuration.

    Attributes:
        about: one line for people.
        program: the module that verl would be started with.
        settings: what differs from the loop's common settings.
        rollout_devices: logical devices that the rollout has beside the workers' own.
        environ: variables that its processes need.
    """

    about: str
    program: str
    settings: Settings = field(default_factory=dict)
    rollout_devices: int = 0
    environ: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher = Launcher.PYTHON

    @property
    def reinforcement(self) -> bool:
        return "sft" not in self.program


PPO = "verl.trainer.main_ppo"
EXPERIMENTAL = "verl.experimental"
TOOL_CALLS = [
    '<tool_call>{"name": "divide", "arguments": {"a": 6, "b": 3}}</tool_call><|im_end|>',
    '<tool_call>{"name": "divide", "arguments": {"a": 1, "b": 0}}</tool_call><|im_end|>',
    '<tool_call>{"name": "multiply", "arguments": {}}</tool_call><|im_end|>',
    "",
]
"""A call that works, one whose tool fails, one of a tool that is not there, and a completion without a call."""

_SEPARATE = {
    "actor_rollout_ref.rollout.nnodes": 1,
    "actor_rollout_ref.rollout.n_gpus_per_node": 1,
    "actor_rollout_ref.rollout.checkpoint_engine.backend": "file",
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module": "verl_cpu.weights",
}
_QUIET = {"VERL_LOGGING_LEVEL": "WARN"}
"""verl 0.9.1 ends separate_async by a mistake in a line that it logs at INFO."""
_EXPERIMENTAL = {
    **_SEPARATE,
    "hydra.searchpath": ["pkg://verl.trainer.config"],
    "actor_rollout_ref.hybrid_engine": False,
    "trainer.use_v1": False,
    "rollout.nnodes": 1,
    "rollout.n_gpus_per_node": 1,
}
_TOOLS = {
    "data.max_response_length": 160,
    "data.max_prompt_length": 768,
    "data.return_raw_chat": True,
    "actor_rollout_ref.rollout.agent.default_agent_loop": "tool_agent",
    "actor_rollout_ref.rollout.multi_turn.enable": True,
    "actor_rollout_ref.rollout.multi_turn.format": "hermes",
    "actor_rollout_ref.rollout.multi_turn.function_tool_path": Path(__file__).with_name("tools.py"),
    "actor_rollout_ref.rollout.multi_turn.max_assistant_turns": 2,
    "actor_rollout_ref.rollout.custom": {"openings": TOOL_CALLS},
}

RECIPES: Mapping[str, Recipe] = {
    "grpo": Recipe("GRPO, trainer and rollout in turn on the same devices", PPO),
    "grpo-v0": Recipe("the same with verl's earlier trainer", PPO, {"trainer.use_v1": False}),
    "ppo": Recipe("PPO with a critic", PPO, {"algorithm.adv_estimator": "gae", "critic.enable": True}),
    "colocate-async": Recipe(
        "GRPO, generating ahead on the same devices", PPO, {"trainer.v1.trainer_mode": "colocate_async"}
    ),
    "separate-async": Recipe(
        "GRPO, the rollout on devices of its own",
        PPO,
        {
            **_SEPARATE,
            "trainer.v1.trainer_mode": "separate_async",
            "trainer.v1.separate_async.parameter_sync_step": 1,
            "actor_rollout_ref.hybrid_engine": False,
        },
        rollout_devices=1,
        environ=_QUIET,
    ),
    "one-step-off": Recipe(
        "GRPO, the rollout one step ahead of the trainer",
        f"{EXPERIMENTAL}.one_step_off_policy.main_ppo",
        _EXPERIMENTAL,
        rollout_devices=1,
    ),
    "fully-async": Recipe(
        "GRPO, rollout and trainer bound by a queue only",
        f"{EXPERIMENTAL}.fully_async_policy.fully_async_main",
        {
            **_EXPERIMENTAL,
            "data.train_batch_size": 0,
            "data.gen_batch_size": 1,
            "rollout.n": 4,
            "rollout.total_rollout_steps": 24,
            "async_training.trigger_parameter_sync_step": 2,
        },
        rollout_devices=1,
    ),
    "tools": Recipe("GRPO over completions that call a tool", PPO, _TOOLS),
    "sft": Recipe(
        "supervised, one process a device under torchrun", "verl.trainer.sft_trainer", launcher=Launcher.TORCHRUN
    ),
    "sft-ray": Recipe("supervised, Ray workers", "verl.trainer.sft_trainer_ray", launcher=Launcher.CLUSTER),
}


def settings(
    recipe: Recipe, assets: Path, output: Path, *, workers: int, steps: int, loggers: list[str]
) -> dict[str, Any]:
    """All settings of a recipe but the user's own."""
    loop = _reinforcement if recipe.reinforcement else _supervised
    return {
        **loop(assets),
        "trainer.logger": loggers,
        "trainer.project_name": "verl-cpu",
        "trainer.experiment_name": output.name,
        "trainer.default_local_dir": output / "checkpoints",
        "trainer.device": "cpu",
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": workers,
        "trainer.total_training_steps": steps,
        "trainer.resume_mode": "disable",
        "trainer.save_freq": -1,
        **recipe.settings,
    }


def overrides(settings: Settings) -> list[str]:
    """Settings as Hydra's command line takes them. `++` sets a key whether or not the configuration has it; Hydra's own
    keys and the choice of a configuration group do without."""
    plain = {key for key in settings if "." not in key or key.startswith("hydra.")}
    return [f"{'' if key in plain else '++'}{key}={_spell(value)}" for key, value in settings.items()]


def _spell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_spell(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_spell, value)) + "]"
    text = str(value)
    if re.fullmatch(r"[A-Za-z_./][\w./-]*", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _reinforcement(assets: Path) -> dict[str, Any]:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": assets / "rl.parquet",
        "data.val_files": assets / "rl_val.parquet",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 128,
        "data.max_response_length": 24,
        "data.dataloader_num_workers": 0,
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": Path(__file__).with_name("reward.py"),
        "reward.custom_reward_function.name": "compute_score",
        "actor_rollout_ref.model.path": assets / "model",
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.strategy": "fsdp2",  # FSDP1 refuses parameters on the CPU
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        f"{actor}.ppo_mini_batch_size": 4,
        f"{actor}.ppo_micro_batch_size_per_gpu": 4,
        f"{actor}.optim.lr": 1e-3,
        "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 4,
        f"{rollout}.name": "cpu",
        f"{rollout}.mode": "async",
        f"{rollout}.n": 4,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.load_format": "auto",
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": 4,
        f"{rollout}.agent.num_workers": 1,
        "critic.strategy": "fsdp2",
        "critic.model.path": assets / "model",
        "critic.ppo_micro_batch_size_per_gpu": 4,
        "critic.model.use_remove_padding": False,
        "critic.model.enable_gradient_checkpointing": False,
        "critic.model.override_config.attn_implementation": "sdpa",
        "critic.fsdp.use_torch_compile": False,
        "trainer.total_epochs": 4,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }


def _supervised(assets: Path) -> dict[str, Any]:
    return {
        "data.train_files": assets / "sft.parquet",
        "data.val_files": assets / "sft_val.parquet",
        "data.train_batch_size": 8,
        "data.micro_batch_size_per_gpu": 4,
        "data.use_dynamic_bsz": False,
        "data.max_length": 128,
        "data.pad_mode": "no_padding",
        "data.messages_key": "messages",
        "data.num_workers": 0,
        "data.ignore_input_ids_mismatch": True,
        "model.path": assets / "model",
        "model.use_remove_padding": False,
        "model.enable_gradient_checkpointing": False,
        "model.override_config.attn_implementation": "sdpa",
        "engine": "fsdp",
        "engine.strategy": "fsdp2",
        "engine.use_torch_compile": False,
        "optim": "fsdp",
        "optim.lr": 1e-3,
        "checkpoint.save_contents": ["model"],
        "trainer.total_epochs": 1,
        "trainer.test_freq": 2,
    }
