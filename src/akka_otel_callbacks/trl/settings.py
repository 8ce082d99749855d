"""What TRL's configuration says of the run: the engine's part of its identity."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.identity import settings_sha
from akka_otel_callbacks.common.metric import Attribute

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

NO_HYPERPARAMETERS = frozenset(
    """
    output_dir overwrite_output_dir logging_dir run_name project trackio_space_id trackio_bucket_id
    trackio_static_space_id report_to resume_from_checkpoint seed data_seed local_rank ddp_backend ddp_timeout debug
    disable_tqdm log_level log_level_replica log_on_each_node log_completions num_completions_to_print
    log_unique_prompts wandb_log_unique_prompts log_multimodal
    logging_strategy logging_first_step logging_steps logging_nan_inf_filter
    save_strategy save_steps save_total_limit save_safetensors save_on_each_node save_only_model
    enable_jit_checkpoint include_num_input_tokens_seen include_tokens_per_second skip_memory_metrics
    push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push hub_revision push_to_hub_model_id
    push_to_hub_organization push_to_hub_token
    dataloader_num_workers dataloader_prefetch_factor dataloader_persistent_workers dataloader_pin_memory
    vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port
    _n_gpu __cached__setup_devices deepspeed_plugin distributed_state use_cpu no_cuda use_mps_device
    """.split()
)
"""Arguments that change where a run lives, what it reports and on which machine, but not what it learns."""


def engine_attributes(trainer: Trainer | None, args: TrainingArguments, kind: str | None) -> dict[Attribute, Any]:
    """The identity as TRL's configuration gives it; None for what it does not say."""
    model = getattr(trainer, "model", None)
    adapter = _adapter(model)
    return {
        names.ATTR_RUN_ENGINE: names.RunEngine.TRL,
        names.ATTR_RUN_METHOD: method(trainer, args),
        names.ATTR_RUN_BASE_MODEL: _base_model(model),
        names.ATTR_RUN_LEARNING_RATE: args.learning_rate,
        names.ATTR_RUN_LORA_RANK: getattr(adapter, "r", None),
        names.ATTR_RUN_GROUP_SIZE: getattr(args, "num_generations", None) if kind == "rl" else None,
        names.ATTR_RUN_SETTINGS_SHA: settings_sha(hyperparameters(trainer, args, adapter)),
    }


def _base_model(model: Any) -> str | None:
    """The name that the model was loaded by; of a folder its last part, which is the same on every machine."""
    name = str(getattr(getattr(model, "config", None), "_name_or_path", None) or "")
    return (os.path.basename(name.rstrip("/")) if os.path.isabs(name) else name) or None


def method(trainer: Trainer | None, args: TrainingArguments) -> str | None:
    """GRPO, GSPO, RLOO, SFT, DPO …: the trainer's nearest known ancestor, or its own name without `Trainer`."""
    if trainer is None:
        return None
    known = next((base.__name__ for base in type(trainer).__mro__ if base.__module__.startswith("trl.")), None)
    name = (known or type(trainer).__name__).removesuffix("Trainer")
    if name == "GRPO" and getattr(args, "importance_sampling_level", "token") == "sequence":
        return "GSPO"  # TRL has GSPO as this setting of GRPO
    return name or None


def hyperparameters(trainer: Trainer | None, args: TrainingArguments, adapter: Any) -> dict[str, Any]:
    """What the settings' hash is taken over: arguments, method, reward functions' names and adapter."""
    settings: dict[str, Any] = {name: value for name, value in args.to_dict().items() if name not in NO_HYPERPARAMETERS}
    settings["method"] = method(trainer, args)
    settings["rewards"] = list(getattr(trainer, "reward_func_names", None) or [])
    if adapter is not None:
        settings["adapter"] = {
            name: value
            for name, value in adapter.to_dict().items()
            if name not in ("base_model_name_or_path", "revision", "peft_version")
        }
    return settings


def _adapter(model: Any) -> Any:
    """The configuration of the active PEFT adapter, None without one."""
    adapters = getattr(model, "peft_config", None)
    if not isinstance(adapters, Mapping) or not adapters:
        return None
    active = getattr(model, "active_adapter", None)
    return adapters.get(active if isinstance(active, str) else next(iter(adapters)))
