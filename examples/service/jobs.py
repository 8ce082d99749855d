"""Training jobs: real ones, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import quote

from store import Run

RUN_ID, PROJECT = "akka.optimize.training.run.id", "akka.optimize.training.project"


class Job:
    """One `akka-otel demo`. It publishes its own figures, under the run's ID and project, into a folder of its own. Its
    spans are part of the trace that asked for the run."""

    def __init__(self, folder: Path) -> None:
        self._figures = folder / "metrics.jsonl"
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, run: Run) -> None:
        project = quote(run.progress.project)
        environ = {
            # What the service's own environment says of exporters is not for its jobs: they would want its port, too.
            **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
            "OTEL_METRICS_EXPORTER": "file",
            "OTEL_TRACES_EXPORTER": "file",
            "OTEL_RESOURCE_ATTRIBUTES": f"{RUN_ID}={run.id},{PROJECT}={project}",
            **({"TRACEPARENT": run.traceparent} if run.traceparent else {}),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        self._figures.unlink(missing_ok=True)
        with (self._folder / "log.txt").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "akka_otel_callbacks", "demo"),
                *("--engine", run.engine, "--steps", str(run.steps), "--dir", str(self._folder)),
                env=environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def trains(self) -> bool:
        """Whether it has completed a step. Its first figures are written right after that."""
        return self._figures.exists()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode if self._process is not None else None

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
