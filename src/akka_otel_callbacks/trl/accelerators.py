"""The accelerators of a TRL job: how many it has, which this process holds, how they are and what fills them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.gpu.device_ids import torch_claim
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.placement import Placement
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.memory.account import CudaAllocator, MemoryAccount
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.run.identity import RunIdentity
from akka_otel_callbacks.common.run.torchrun import KEY, agree
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES

if TYPE_CHECKING:
    from transformers import Trainer, TrainingArguments


def claim(trainer: Trainer | None, args: TrainingArguments) -> list[int]:
    """The CUDA ordinals that this process trains on. A model that was spread over several (`device_map`) holds them
    all, where the arguments know of one only."""
    spread = getattr(getattr(trainer, "model", None), "hf_device_map", None) or {}
    if args.device.type == "cuda" and len(set(spread.values())) > 1:
        return sorted({place for place in spread.values() if isinstance(place, int)})
    return torch_claim(args.device.type, args.device.index, args.n_gpu)


def device_count(trainer: Trainer | None, args: TrainingArguments) -> int:
    """Devices of the whole job; a process without an accelerator trains on one, its CPU."""
    return int(max(1, args.world_size)) * max(1, len(claim(trainer, args)))


def memory_account(trainer: Trainer | None, args: TrainingArguments) -> MemoryAccount:
    """Follows the memory of this process's devices; in parts only where the job sees a single one, and where the
    trainer's own memory metrics do not read the peak counters that the parts reset."""
    parts = device_count(trainer, args) == 1 and args.skip_memory_metrics
    return MemoryAccount([CudaAllocator(ordinal) for ordinal in claim(trainer, args)], parts=parts)


def publish_count(telemetry: Telemetry, trainer: Trainer | None, args: TrainingArguments) -> None:
    """`job.devices`; absent where the job trains on a CPU."""
    if args.device.type != "cpu":
        count = device_count(trainer, args)
        telemetry.observe(names.JOB_DEVICES, lambda: ((count, NO_ATTRIBUTES),))


def publish_gpus(telemetry: Telemetry, gpus: GpuHealth, rank: int | None) -> None:
    """Placement and health of this process's GPUs, for as long as the telemetry is open.

    Args:
        rank: the process's; None in a job of one process.
    """
    placement = Placement(gpus.devices, rank=rank, where=telemetry.identity.attributes)
    telemetry.observe(placement.metric, placement.points)
    for metric in gpus.metrics:
        telemetry.observe(metric, lambda metric=metric: gpus.points(metric))  # type: ignore[misc]
    gpus.start()


class Rank:
    """A process of the job beside the first: it publishes the GPUs that it holds and nothing of the steps.

    Which attempt of which run it is comes from the first rank, which is asked on a thread of its own, so that the
    training waits for nothing.

    Args:
        identity: gives the process's identity from the attempt.
        gpus: the process's GPUs.
        rank: the process's.
        training: which training of the processes it is, counted alike in all of them.
    """

    def __init__(self, identity: Callable[[Attempt], RunIdentity], gpus: GpuHealth, rank: int, training: int) -> None:
        self._identity, self._gpus, self._rank, self._training = identity, gpus, rank, training
        self._telemetry: Telemetry | None = None
        self._closed = False
        self._opening = threading.Lock()
        threading.Thread(target=self._open, name="akka-otel-rank", daemon=True).start()

    def close(self) -> None:
        with self._opening:
            self._closed = True
        if self._telemetry is not None:
            self._telemetry.close()

    @guarded
    def _open(self) -> None:
        from opentelemetry.trace import NoOpTracerProvider

        told = agree(self._rank, lambda: "", _key(self._training))
        attempt = Attempt.from_json(told) if told is not None else None
        with self._opening:
            if attempt is None or self._closed:
                return
            self._telemetry = Telemetry.start(
                self._identity(attempt),
                None,
                tracer_provider=NoOpTracerProvider(),  # the job's span is the first rank's
                writer=f"rank-{self._rank}",
            )
            publish_gpus(self._telemetry, self._gpus, self._rank)
            self._telemetry.when_closed(self._gpus.stop)


def tell_ranks(attempt: Attempt, training: int) -> None:
    """Gives the other ranks the attempt, on a thread of its own."""
    arguments = 0, attempt.to_json, _key(training)
    threading.Thread(target=guarded(agree), args=arguments, name="akka-otel-run-id", daemon=True).start()


def _key(training: int) -> str:
    return f"{KEY}_{training}"
