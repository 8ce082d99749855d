"""The accelerators of a TRL job: their number, those of this process, their health and their memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.companion import Companion
from akka_otel_callbacks.common.gpu.device_ids import torch_device_ids
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.placement import Placement
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.memory.account import MemoryAccount
from akka_otel_callbacks.common.memory.allocator import CudaAllocator
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.run.identity import RunIdentity
from akka_otel_callbacks.common.run.torchrun import KEY, share, shared, shared_trace
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.source import Constant

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments


def device_ids(trainer: Trainer | None, args: TrainingArguments) -> list[int]:
    """The CUDA ordinals that this process trains on. A model that is spread over several devices (`device_map`) says
    which, while the arguments know only one."""
    spread = getattr(getattr(trainer, "model", None), "hf_device_map", None) or {}
    if args.device.type == "cuda" and len(set(spread.values())) > 1:
        return sorted({place for place in spread.values() if isinstance(place, int)})
    return torch_device_ids(args.device.type, args.device.index, args.n_gpu)


def device_count(trainer: Trainer | None, args: TrainingArguments) -> int:
    """The devices of the whole job. A process without an accelerator counts as one device, its CPU."""
    return int(max(1, args.world_size)) * max(1, len(device_ids(trainer, args)))


def memory_account(trainer: Trainer | None, args: TrainingArguments) -> MemoryAccount:
    """Follows the memory of this process's devices. It measures the parts only if the job has a single device, and only
    if the trainer's own memory metrics are off: they read the peak counters that the parts reset."""
    parts = device_count(trainer, args) == 1 and args.skip_memory_metrics
    return MemoryAccount([CudaAllocator(ordinal) for ordinal in device_ids(trainer, args)], parts=parts)


def publish_count(telemetry: Telemetry, trainer: Trainer | None, args: TrainingArguments) -> None:
    """Publishes `job.devices`, unless the job trains on a CPU."""
    if args.device.type != "cpu":
        telemetry.publish(Constant(names.JOB_DEVICES, device_count(trainer, args)))


def publish_gpus(telemetry: Telemetry, gpus: GpuHealth, rank: int | None) -> None:
    """Publishes placement and health of this process's GPUs, for as long as the telemetry is open.

    Args:
        rank: the process's. None in a job of one process.
    """
    telemetry.publish(Placement(gpus.devices, where=telemetry.identity.attributes, rank=rank))
    telemetry.publish(gpus)
    gpus.start()


def companion(identity: Callable[[Attempt], RunIdentity], gpus: GpuHealth, rank: int, training: int) -> Companion:
    """What every process of the job but the first publishes. The first one tells the others the run and the attempt.

    Args:
        identity: makes the process's identity from the attempt.
        gpus: the process's GPUs.
        rank: the process's.
        training: the number of this training, which all processes count alike.
    """

    def told() -> RunIdentity | None:
        attempt = shared(_key(training))
        return identity(attempt) if attempt is not None else None

    return Companion(
        told,
        lambda: gpus,
        rank=rank,
        writer=f"rank-{rank}",
        environ=lambda: _exporting(os.environ),
        within=lambda: shared_trace(_key(training)),
    )


def _exporting(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment that chooses a companion's exporters. On each further node, the first process takes the port that
    the environment names, as the training does on its own node."""
    from akka_otel_callbacks.common.export.selection import beside_training

    return environ if environ.get("LOCAL_RANK") == "0" else beside_training(environ)


def tell_companions(attempt: Attempt, training: int, trace: Mapping[str, str]) -> None:
    """Gives the other ranks the attempt and the job's span, on a thread of its own."""
    arguments = attempt, _key(training), trace
    threading.Thread(target=guarded(share), args=arguments, name="akka-otel-run-id", daemon=True).start()


def _key(training: int) -> str:
    return f"{KEY}_{training}"
