"""The CPU as an accelerator platform of verl, and what else verl assumes of an accelerator.

The entry point runs in every process of a job, so nothing heavy is imported here: each correction waits until verl
itself imports the module that needs it.
"""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry, set_platform
from wrapt import when_imported


class CpuDevice:
    """`torch.cpu` with the calls that verl makes on a device module. There is no device memory to speak of."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def _nothing(self, *args: Any) -> None: ...

    def _no_bytes(self, *args: Any) -> int:
        return 0

    empty_cache = ipc_collect = reset_peak_memory_stats = set_device = synchronize = _nothing
    memory_allocated = memory_reserved = max_memory_allocated = max_memory_reserved = _no_bytes

    def is_available(self) -> bool:
        return False  # verl's memory utilities then leave it alone

    def mem_get_info(self, *args: Any) -> tuple[int, int]:
        return 0, 0

    def current_device(self) -> str:
        return "cpu"

    def get_device_name(self, *args: Any) -> str:
        return "CPU"

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, *args: Any) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, *args: Any) -> None:
        torch.set_rng_state(state)


class CpuPlatform(PlatformBase):
    """Ray's `GPU` resource stays the unit of placement, so that verl places its workers as it does on real devices;
    `ray.init(num_gpus=N)` makes as many of them as one likes."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = CpuDevice()

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # never found by probing: only the plugin sets it

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def _nothing(self, *args: Any) -> None: ...

    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _nothing

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False


def install() -> None:
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered under that name and runs here
    PlatformRegistry.register("cpu")(CpuPlatform)
    set_platform(CpuPlatform())


@when_imported("verl.utils.distributed")
def _gloo_alone(module: ModuleType) -> None:
    """verl asks for `cpu:gloo,cpu:gloo`, which torch refuses: the device's backend and the CPU's are one here."""

    def in_torchrun(timeout_second: int = 36000) -> tuple[int, int, int]:
        torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=timeout_second))
        return tuple(int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))  # type: ignore[return-value]

    def in_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                "gloo",
                rank=int(os.environ.get("RANK", 0)),
                world_size=int(os.environ.get("WORLD_SIZE", 1)),
                timeout=timedelta(seconds=timeout_second) if timeout_second else None,
            )

    module.initialize_global_process_group = in_torchrun
    module.initialize_global_process_group_ray = in_ray


@when_imported("verl.workers.engine.fsdp.transformer_impl")
def _no_pinned_memory(module: ModuleType) -> None:
    """The reference policy is offloaded to the host, where it already is; pinning needs an accelerator."""
    from torch.distributed.fsdp import OffloadPolicy

    module.CPUOffloadPolicy = lambda pin_memory=True: OffloadPolicy()


@when_imported("verl.utils.model")
def _value_head_without_flash_attention(module: ModuleType) -> None:
    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path, dtype=torch_dtype, config=model_config, attn_implementation="sdpa"
        )

    module.load_valuehead_model = load_valuehead_model


@when_imported("verl.workers.rollout.base")
def _rollout_worker(module: ModuleType) -> None:
    module._ROLLOUT_REGISTRY["cpu", "async"] = "verl_cpu.rollout.WeightSender"


@when_imported("verl.workers.rollout.replica")
def _rollout_server(module: ModuleType) -> None:
    def load() -> type:
        from verl_cpu.rollout import Replica

        return Replica

    module.RolloutReplicaRegistry.register("cpu", load)
