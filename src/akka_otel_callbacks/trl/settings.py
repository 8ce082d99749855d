"""What TRL's configuration says of the run: the engine's part of its identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.run.model_name import model_name, run_name
from akka_otel_callbacks.common.run.settings import relevant
from akka_otel_callbacks.common.run.settings_hash import settings_sha
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.trl.kinds import RL, method_of

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments

NO_HYPERPARAMETERS = frozenset(
    """
    overwrite_output_dir ddp_backend debug disable_tqdm num_completions_to_print
    include_num_input_tokens_seen include_tokens_per_second skip_memory_metrics restore_callback_states_from_checkpoint
    dataloader_prefetch_factor dataloader_persistent_workers dataloader_pin_memory dataloader_in_order
    dataloader_multiprocessing_context trackio_space_id trackio_bucket_id trackio_static_space_id
    _n_gpu __cached__setup_devices deepspeed_plugin distributed_state use_cpu no_cuda use_mps_device
    """.split()
)
"""Arguments of transformers that do not change what a run learns, beside those that any engine may have."""
TOKEN = "_token"


def engine_attributes(trainer: Trainer | None, args: TrainingArguments, kind: str | None) -> dict[Attribute, Any]:
    """What TRL's configuration says of the run, by attribute. None for what it does not say."""
    model = getattr(trainer, "model", None)
    adapter = adapter_of(model)
    return {
        names.ATTR_RUN_ENGINE: names.RunEngine.TRL,
        names.ATTR_RUN_METHOD: method(trainer, args),
        names.ATTR_RUN_NAME: _name(args),
        names.ATTR_RUN_BASE_MODEL: _base_model(model, adapter),
        names.ATTR_RUN_LEARNING_RATE: args.learning_rate,
        names.ATTR_RUN_LORA_RANK: getattr(adapter, "r", None),
        names.ATTR_RUN_GROUP_SIZE: getattr(args, "num_generations", None) if kind == RL else None,
        names.ATTR_RUN_SETTINGS_SHA: settings_sha(hyperparameters(trainer, args, adapter)),
    }


def _name(args: TrainingArguments) -> str | None:
    """The run's name. None if it is the output folder, which transformers up to 4.57 puts in its place."""
    name = getattr(args, "run_name", None)
    return None if name == args.output_dir else run_name(name)


def _base_model(model: Any, adapter: Any) -> str | None:
    """The model that was loaded, or the one that its adapter was made for."""
    loaded = model_name(getattr(getattr(model, "config", None), "_name_or_path", None))
    return loaded or model_name(getattr(adapter, "base_model_name_or_path", None))


def method(trainer: Trainer | None, args: TrainingArguments) -> str | None:
    """GRPO, GSPO, RLOO, SFT, DPO and so on. None for a trainer that is not TRL's."""
    name = method_of(trainer)
    if name == "GRPO" and getattr(args, "importance_sampling_level", "token") == "sequence":
        return "GSPO"  # TRL has GSPO as this setting of GRPO
    return name


def hyperparameters(trainer: Trainer | None, args: TrainingArguments, adapter: Any) -> dict[str, Any]:
    """The settings that are hashed: arguments, method, names of the reward functions, and adapter."""
    # transformers hides every `…_token`, those that a text ends with among them; what is secret is left out here.
    said = {
        name: getattr(args, name, value) if name.endswith(TOKEN) else value for name, value in args.to_dict().items()
    }
    settings: dict[str, Any] = relevant(said, NO_HYPERPARAMETERS)
    settings["method"] = method(trainer, args)
    settings["rewards"] = list(getattr(trainer, "reward_func_names", None) or [])
    if adapter is not None:
        settings["adapter"] = relevant(adapter.to_dict(), ("revision", "peft_version"))
    return settings


def adapter_of(model: Any) -> Any:
    """The configuration of the active PEFT adapter. None if there is none."""
    adapters = getattr(model, "peft_config", None)
    if not isinstance(adapters, Mapping) or not adapters:
        return None
    active = getattr(model, "active_adapter", None)
    return adapters.get(active if isinstance(active, str) else next(iter(adapters)))
