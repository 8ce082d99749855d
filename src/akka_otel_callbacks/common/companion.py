"""A process of a job beside the one that reports its steps: it publishes the GPUs that it holds, and nothing else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.guard import guarded

if TYPE_CHECKING:  # the processes of a job load this before they train, and the rest on the companion's own thread
    from akka_otel_callbacks.common.gpu.health import GpuHealth
    from akka_otel_callbacks.common.run.identity import RunIdentity
    from akka_otel_callbacks.common.telemetry import Telemetry

Role = Callable[[], "str | None"]
"""Gives what the process does, in the engine's words. None while that is not known."""


class Companion:
    """The telemetry of a process beside the one that reports the steps. It opens on a thread of its own, because the
    training must not wait until another process has told which run this one is part of.

    Args:
        identity: returns who the process is. None if nobody tells which run it is part of: then nothing is published.
        gpus: returns its GPUs.
        rank: its rank among the processes of its kind.
        writer: its name among the processes that write the run's embedded files.
        role: returns what the process does, see `Placement`. Without it the process is a trainer. It is called before
            anything else, and at every export.
        without_gpu: whether it publishes where it runs even if it holds no GPU.
        environ: returns the variables that choose its exporters.
        within: returns the job's span, see `Telemetry.start`. It is called once the identity is known.
    """

    def __init__(
        self,
        identity: Callable[[], RunIdentity | None],
        gpus: Callable[[], GpuHealth],
        *,
        rank: int,
        writer: str,
        role: Role | None = None,
        without_gpu: bool = False,
        environ: Callable[[], Mapping[str, str]] = lambda: os.environ,
        within: Callable[[], Mapping[str, str]] = lambda: os.environ,
    ) -> None:
        self._identity, self._gpus = identity, gpus
        self._rank, self._writer, self._environ, self._within = rank, writer, environ, within
        self._role, self._without_gpu = role, without_gpu
        self._closed = False
        self._opening = threading.Lock()
        self.telemetry: Telemetry | None = None
        """None until it is open."""
        threading.Thread(target=self._open, name="akka-otel-companion", daemon=True).start()

    def flush(self, timeout_s: float) -> bool:
        """Exports now, and waits for at most that long. False where it did not end in time, or nothing is open."""
        return self.telemetry is not None and self.telemetry.flush(timeout_s)

    def close(self) -> None:
        with self._opening:
            self._closed = True
        if self.telemetry is not None:
            self.telemetry.close()

    @guarded
    def _open(self) -> None:
        if self._role is not None:
            self._role()  # the object that knows it may be gone before the first export
        identity = self._identity()
        if identity is None:
            return
        gpus = self._gpus()
        with self._opening:
            if not self._closed:
                self.telemetry = self._opened(identity, gpus)

    def _opened(self, identity: RunIdentity, gpus: GpuHealth) -> Telemetry:
        from akka_otel_callbacks.common.gpu.placement import Placement
        from akka_otel_callbacks.common.telemetry import Telemetry

        telemetry = Telemetry.start(
            identity,
            None,
            environ=self._environ(),
            writer=self._writer,
            within=self._within(),  # the job's span is that of the process that reports the steps
        )
        telemetry.when_closed(gpus.stop)
        placement = Placement(
            gpus.devices,
            where=identity.attributes,
            rank=self._rank,
            role=self._role,
            without_gpu=self._without_gpu,
        )
        telemetry.publish(placement)
        telemetry.publish(gpus)
        gpus.start()
        return telemetry
