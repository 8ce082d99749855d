"""Runs a recipe as a user would run verl: its own program in a process of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from verl_cpu import assets
from verl_cpu.recipes import RECIPES, Launcher, overrides, settings

LOGICAL_CPUS = 40
"""Ray only counts them. verl reserves up to ten for each worker; far more than a small machine has."""
OBJECT_STORE_BYTES = 500_000_000
START_TIMEOUT_S = 60.0

ENVIRONMENT = {
    "VERL_CPU": "1",
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # a process for every logical CPU, none of which a recipe uses
}


def train(
    name: str,
    directory: Path,
    *,
    workers: int = 1,
    steps: int = 3,
    loggers: Sequence[str] = ("console",),
    extra: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    output: IO[Any] | int | None = None,
    timeout_s: float = 420,
) -> int:
    """Trains to the end and returns the program's exit status.

    Args:
        name: a key of `RECIPES`.
        directory: takes the model, the data, verl's outputs; it is the working directory of the run.
        workers: worker processes, each with a logical device of its own.
        steps: training steps.
        loggers: verl's tracking backends.
        extra: further Hydra overrides.
        environ: the environment to start from.
        output: where the program's output goes, as of `subprocess.Popen`; None is this process's own.
        timeout_s: after it the run is killed and `TimeoutError` raised.
    """
    recipe = RECIPES[name]
    directory = directory.resolve()
    made = assets.make(directory / "assets")
    chosen = settings(recipe, made, directory, workers=workers, steps=steps, loggers=list(loggers))
    with ExitStack() as ends_with_run:
        environ = {**environ, **ENVIRONMENT, **recipe.environ, "VERL_CPU_WEIGHTS": str(directory / "weights")}
        environ["RAY_TMPDIR"] = ends_with_run.enter_context(_ray_directory())
        if recipe.launcher is Launcher.CLUSTER and "RAY_ADDRESS" not in environ:
            environ["RAY_ADDRESS"] = ends_with_run.enter_context(cluster(workers, environ))
        elif recipe.reinforcement and "RAY_ADDRESS" not in environ:
            chosen |= _own_cluster(workers + recipe.rollout_devices)
        launcher = _torchrun(workers) if recipe.launcher is Launcher.TORCHRUN else []
        command = [sys.executable, "-m", *launcher, recipe.program, *overrides(chosen), *extra]
        process = ends_with_run.enter_context(_program(command, environ, cwd=directory, stdout=output))
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{recipe.program} did not end within {timeout_s:g} s") from error


@contextmanager
def cluster(devices: int, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """A Ray cluster of one node that runs before and after a job, for `RAY_ADDRESS`. Jobs do not inherit their
    driver's environment there."""
    address = f"127.0.0.1:{_free_port()}"
    options = {
        "port": address.rpartition(":")[2],
        "node-ip-address": "127.0.0.1",
        "num-gpus": devices,
        "num-cpus": LOGICAL_CPUS,
        "include-dashboard": "false",
        "object-store-memory": OBJECT_STORE_BYTES,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with _ray_directory() as ray_directory:
        environ = {**environ, **ENVIRONMENT, "RAY_TMPDIR": ray_directory}
        with _program(command, environ, stdout=subprocess.DEVNULL) as process:
            _wait_for(address, process)
            yield address


def _own_cluster(devices: int) -> dict[str, Any]:
    """Settings for the cluster that verl starts for a job."""
    return {
        "ray_kwargs.ray_init.num_cpus": LOGICAL_CPUS,
        "ray_kwargs.ray_init.num_gpus": devices,
        "ray_kwargs.ray_init.include_dashboard": False,
        "ray_kwargs.ray_init.object_store_memory": OBJECT_STORE_BYTES,
    }


def _torchrun(workers: int) -> list[str]:
    return ["torch.distributed.run", "--standalone", f"--nproc_per_node={workers}", "-m"]


@contextmanager
def _program(command: Sequence[str], environ: Mapping[str, str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program in a session of its own, which ends with the block and with whatever it started."""
    process = subprocess.Popen(command, env=environ, stderr=subprocess.STDOUT, start_new_session=True, **options)
    try:
        yield process
    finally:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, sent)
                process.wait(5)


@contextmanager
def _ray_directory() -> Iterator[str]:
    """A folder for Ray's session. Its sockets' names must stay short, so it is not beside the run's outputs."""
    directory = tempfile.mkdtemp(prefix="verl-cpu-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(address: str, process: subprocess.Popen[Any]) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the Ray cluster ended with status {process.returncode} while starting")
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"no Ray cluster answers at {address} after {START_TIMEOUT_S:g} s")
