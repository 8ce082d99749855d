"""Makes accelerate train with FSDP2 on CPUs, which it refuses by itself. Imported before trainers are made."""

from __future__ import annotations

import os
from typing import Any

import accelerate.state
from accelerate.utils import DistributedType

SETTINGS = {
    "ACCELERATE_USE_CPU": "true",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "Qwen3DecoderLayer",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
TRAINER = {
    "fsdp": "full_shard auto_wrap",
    "fsdp_config": {
        "version": 2,
        "transformer_layer_cls_to_wrap": ["Qwen3DecoderLayer"],
        "cpu_ram_efficient_loading": False,
    },
}
"""A trainer's arguments."""


def allow() -> None:
    os.environ.update(SETTINGS)
    known = accelerate.state.AcceleratorState.__init__
    plugins: list[Any] = []

    def begin(state: Any, *args: Any, **kwargs: Any) -> None:
        known(state, *args, **kwargs)
        if kwargs.get("fsdp_plugin") is not None:
            plugins[:] = [kwargs["fsdp_plugin"]]
        if plugins and state.distributed_type == DistributedType.MULTI_CPU:  # also where TRL asks for the state anew
            state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, plugins[0]

    accelerate.state.AcceleratorState.__init__ = begin
