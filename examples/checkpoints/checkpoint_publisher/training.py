"""Stages what a trainer saves, and has it published beside the training: by a thread, or by a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.checkpoints import ArtifactKind
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.staging import Staging

SAVED_LAST = "trainer_state.json"


class Publishing(Protocol):
    def start(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """A publisher in a process of its own, which finds the run and its trace in its environment."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = [sys.executable, str(Path(__file__).parents[1] / "publish.py"), *self._arguments]
        environ = {**os.environ, **checkpoints.environment()}
        self._process = subprocess.Popen(program, env=environ, stdin=subprocess.PIPE)

    def wake(self) -> None:
        """It looks by itself."""

    def close(self) -> None:
        """It publishes what waits and ends when its input does."""
        if self._process is not None:
            self._process.communicate()


class StagesCheckpoints(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Stands behind the telemetry's callback, whose run it names the snapshots after."""

    def __init__(
        self, telemetry: AkkaTelemetryCallback, staging: Staging, catalog: Catalog, publishing: Publishing
    ) -> None:
        self._telemetry, self._staging, self._catalog, self._publishing = telemetry, staging, catalog, publishing

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._staging.clean()
        self._publishing.start()
        for checkpoint in sorted(Path(args.output_dir).glob("checkpoint-*")):
            if (checkpoint / SAVED_LAST).exists():  # a process before this one may have died between save and stage
                self._stage(checkpoint)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._stage(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def _stage(self, checkpoint: Path) -> None:
        attempt, step = self._telemetry.attempt, int(checkpoint.name.rpartition("-")[2])
        if attempt is None or self._catalog.has(attempt.run_id, step):  # switched off, or published before
            return
        self._staging.stage(
            checkpoint,
            run_id=attempt.run_id,
            attempt=attempt.number,
            engine_step=step,
            artifact_kind=ArtifactKind.FULL_STATE,
        )
        self._publishing.wake()
