"""What a snapshot consists of, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

BLOCK_BYTES = 1 << 20
IGNORED = {"akka_otel_run.json"}
"""Who resumed from a checkpoint is written into it later, and is no part of what was saved."""


class InvalidManifest(ValueError):
    """A manifest that is not of a snapshot, or not of the one that was asked for."""


@dataclass(frozen=True)
class File:
    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> File:
        with path.open("rb") as file:
            return cls(digest(file), path.stat().st_size)


@dataclass(frozen=True)
class Manifest:
    """Equal content has the same `snapshot_id`, whoever staged it and however often."""

    run_id: str
    attempt: int
    engine_step: int
    artifact_kind: str
    files: dict[str, File]

    @property
    def snapshot_id(self) -> str:
        content = json.dumps({name: file.sha256 for name, file in self.files.items()}, sort_keys=True)
        return hashlib.sha256(f"{self.run_id} {self.engine_step} {content}".encode()).hexdigest()[:16]

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, snapshot_id: str | None = None) -> Manifest:
        """Raises InvalidManifest for anything that `to_json` does not write, and for another snapshot than this."""
        try:
            read: dict[str, Any] = json.loads(text)
            read["files"] = {name: File(**file) for name, file in read["files"].items()}
            manifest = cls(**read)
            found = manifest.snapshot_id
            if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in manifest.files):
                raise ValueError("a file of it lies outside of the snapshot")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidManifest(f"this is no manifest: {error}") from error
        if snapshot_id not in (None, found):
            raise InvalidManifest(f"this is the manifest of {found}, not of {snapshot_id}")
        return manifest


def describe(folder: Path, *, run_id: str, attempt: int, engine_step: int, artifact_kind: str) -> Manifest:
    """The manifest of a folder's content."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in IGNORED)
    files = {path.relative_to(folder).as_posix(): File.of(path) for path in paths}
    return Manifest(run_id, attempt, engine_step, artifact_kind, files)


def digest(file: IO[bytes]) -> str:
    found = hashlib.sha256()
    while block := file.read(BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()
