"""What each of verl's worker processes publishes of itself: where it runs, which GPU it holds and that GPU's health."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.companion import Companion
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import show_infos
from akka_otel_callbacks.common.run import torchrun
from akka_otel_callbacks.common.run.handed_on import names_run
from akka_otel_callbacks.verl import run
from akka_otel_callbacks.verl.config import get

if TYPE_CHECKING:
    from akka_otel_callbacks.common.gpu.health import GpuHealth
    from akka_otel_callbacks.common.run.identity import RunIdentity

INTERVAL_S = 5
"""Ray ends workers with SIGKILL, so what was not exported is lost. The usual variable sets another interval."""
ROLLOUT_GROUPS = {"rollout_reward_": "rm", "rollout_teacher_": "teacher"}
"""How the name of a group of `CheckpointEngineWorker` begins whose model is not the policy; verl's names for them."""


class LastKnownRole:
    """The roles of a worker. At the exit the worker may be gone, and its roles are still true."""

    def __init__(self, worker: Any) -> None:
        self._worker = weakref.ref(worker)
        self._known: str | None = None

    def __call__(self) -> str | None:
        self._known = role_of(self._worker(), os.environ) or self._known
        return self._known


def companion(worker: Any, config: Any) -> Companion:
    """What this process publishes.

    Args:
        worker: the outermost of verl's workers in the process.
        config: verl's configuration, None in a process of Ray.
    """
    return Companion(
        lambda: _identity(config, os.environ),
        lambda: _gpus(config, os.environ),
        rank=_rank(os.environ),
        writer=_name(os.environ),
        role=LastKnownRole(worker),
        without_gpu=True,
        environ=lambda: _exporting(os.environ),
        within=lambda: _job_span(config, os.environ),
    )


def role_of(worker: Any, environ: Mapping[str, str]) -> str | None:
    """The roles that a worker process holds, in verl's words. None while its workers are being made.

    They are known only after the outer worker's constructor: `WorkerDict` and `FusedWorker` fill a dict of roles.
    """
    from akka_otel_callbacks.common.vocabulary.names import JobRole

    inner = getattr(worker, "worker_dict", None) or getattr(worker, "fused_worker_dict", None)
    if inner:
        return "+".join(sorted(inner))
    name = type(worker).__name__
    if worker is None or name.startswith(("WorkerDict", "FusedWorker")):
        return None
    if name == "CheckpointEngineWorker":
        group = environ.get("WG_PREFIX", "")
        return next((role for prefix, role in ROLLOUT_GROUPS.items() if group.startswith(prefix)), JobRole.ROLLOUT)
    return JobRole.TRAINER if name == "TrainingWorker" else str(getattr(worker, "role", None) or name)


def _identity(config: Any, environ: Mapping[str, str]) -> RunIdentity | None:
    """The run's identity with an instance of its own. None where the run's ID cannot be told."""
    from akka_otel_callbacks.common.run.identity import RunIdentity
    from akka_otel_callbacks.common.vocabulary import names

    if not (_knows_run(config, environ) if config is not None else names_run(environ)):
        return None
    if _speaks_for_node(environ):
        show_infos()
    this = run.identity(config)
    instance = f"{this.run_id}.{this.attempt}.{_name(environ)}"
    return RunIdentity({**this.attributes, names.ATTR_SERVICE_INSTANCE_ID.name: instance})


def _knows_run(config: Any, environ: Mapping[str, str]) -> bool:
    """Whether this process of torchrun knows the run and its attempt, which rank 0 finds out and tells."""
    if _rank(environ) == 0:
        torchrun.share(run.attempt(config), trace=run.job_span())
        return True
    attempt = torchrun.shared()
    if attempt is not None:
        run.adopt(attempt)
    return attempt is not None


def _job_span(config: Any, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The trainer's process hands it to those of Ray; the ranks of torchrun have it from the first."""
    if config is None:
        return environ
    return run.job_span() if _rank(environ) == 0 else torchrun.shared_trace()


def _gpus(config: Any, environ: Mapping[str, str]) -> GpuHealth:
    from akka_otel_callbacks.common.gpu.health import GpuHealth

    return GpuHealth(_device_ids(config, environ) or [])


@guarded
def _device_ids(config: Any, environ: Mapping[str, str]) -> list[int | str]:
    """The GPUs that the process holds: as Ray assigned them, or one per process under torchrun."""
    from akka_otel_callbacks.common.gpu.device_ids import ray_device_ids, torch_device_ids

    if config is not None:
        return [*torch_device_ids(get(config, "trainer.device", "cuda"), int(environ["LOCAL_RANK"]), 1)]
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():  # asking Ray for its context would start one
        return []
    return ray_device_ids(ray.get_runtime_context().get_accelerator_ids().get("GPU", ()), environ)


def _exporting(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that chooses a worker's exporters."""
    from akka_otel_callbacks.common.export.selection import beside_training

    return {"OTEL_METRIC_EXPORT_INTERVAL": str(INTERVAL_S * 1000), **beside_training(environ)}


def _speaks_for_node(environ: Mapping[str, str]) -> bool:
    """Whether this worker says where the figures of its node's workers are. verl numbers the workers node by node."""
    on_node = environ.get("RAY_LOCAL_WORLD_SIZE") or environ.get("LOCAL_WORLD_SIZE") or "1"
    return _rank(environ) % int(on_node) == 0


def _name(environ: Mapping[str, str]) -> str:
    """What tells the worker from every other of the job: a rank is one only inside its group."""
    return f"{environ.get('WG_PREFIX', 'worker')}.{_rank(environ)}"


def _rank(environ: Mapping[str, str]) -> int:
    return int(environ["RANK"])
