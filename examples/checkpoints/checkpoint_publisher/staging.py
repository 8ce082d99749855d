"""The local folder in which snapshots wait, out of the reach of a trainer that removes old checkpoints."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from akka_otel_callbacks import checkpoints
from checkpoint_publisher.manifest import IGNORED, Manifest, describe

MANIFEST, PAYLOAD = "manifest.json", "payload"
UNFINISHED = ".unfinished"
"""How the name of a folder ends that is being made or removed. What a crash leaves of it means nothing."""


@dataclass(frozen=True)
class Staged:
    """One snapshot that waits."""

    folder: Path
    manifest: Manifest


class Staging:
    """A snapshot is in it as a whole or not at all: a rename is the one step that makes it or takes it away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def clean(self) -> None:
        """Removes what a crash left unfinished. Only before anything else begins."""
        for leftover in self._folder.glob(f"*{UNFINISHED}"):
            shutil.rmtree(leftover)

    def stage(self, checkpoint: Path, *, run_id: str, attempt: int, engine_step: int, artifact_kind: str) -> Staged:
        """Copies a checkpoint that the engine has finished. To stage the same again changes nothing."""
        with checkpoints.stage(artifact_kind=artifact_kind) as stage:
            unfinished = self._folder / f"{run_id}-{engine_step}{UNFINISHED}"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(checkpoint, unfinished / PAYLOAD, ignore=shutil.ignore_patterns(*IGNORED))
            manifest = describe(
                unfinished / PAYLOAD,
                run_id=run_id,
                attempt=attempt,
                engine_step=engine_step,
                artifact_kind=artifact_kind,
            )
            stage.describe(snapshot_id=manifest.snapshot_id)
            (unfinished / MANIFEST).write_text(manifest.to_json())
            _to_disk(unfinished)
            folder = self._folder / manifest.snapshot_id
            if folder.exists():
                shutil.rmtree(unfinished)
            else:
                os.replace(unfinished, folder)
            return Staged(folder, manifest)

    def waiting(self) -> list[Staged]:
        """In the order of their steps."""
        found = []
        for folder in self._folder.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):  # another thread has just removed it
                if folder.suffix != UNFINISHED:
                    found.append(Staged(folder, Manifest.from_json((folder / MANIFEST).read_text())))
        return sorted(found, key=lambda staged: staged.manifest.engine_step)

    def remove(self, staged: Staged) -> None:
        unfinished = staged.folder.with_name(f"{staged.folder.name}{UNFINISHED}")
        os.replace(staged.folder, unfinished)
        shutil.rmtree(unfinished)


def _to_disk(folder: Path) -> None:
    """What a rename makes valid must not be lost with the machine's memory."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
