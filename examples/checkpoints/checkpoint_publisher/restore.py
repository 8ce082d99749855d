"""Fetches a published snapshot back, to resume its run or to start a branch from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.checkpoints import FailureReason
from checkpoint_publisher.catalog import Catalog, Refused
from checkpoint_publisher.manifest import Manifest
from checkpoint_publisher.staging import MANIFEST
from checkpoint_publisher.store import Damaged, Store


def restore(snapshot_id: str, folder: Path, store: Store, catalog: Catalog, *, restore_mode: str) -> Path:
    """Puts the snapshot at `folder/checkpoint-<step>`, as a whole or not at all, and returns that.

    Raises:
        Refused: the catalog knows no published snapshot of that ID.
        InvalidManifest: what is stored under it is another.
        Damaged: a file is not what the manifest says.
    """
    about: checkpoints.About = {"snapshot_id": snapshot_id, "restore_mode": restore_mode, "storage_mode": store.mode}
    with checkpoints.validate(**about) as validation:
        if not catalog.is_published(snapshot_id):
            raise Refused(f"{snapshot_id} is not published")
        manifest = Manifest.from_json(store.read(snapshot_id, MANIFEST), snapshot_id)
        source: checkpoints.About = {
            "artifact_kind": manifest.artifact_kind,
            "source_run_id": manifest.run_id,
            "source_attempt": manifest.attempt,
            "source_engine_step": manifest.engine_step,
        }
        validation.describe(**source)
    target, unfinished = folder / f"checkpoint-{manifest.engine_step}", folder / f".{snapshot_id}.unfinished"
    with checkpoints.materialize(**about) as fetch:
        fetch.describe(**source)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        try:
            for name, file in manifest.files.items():
                fetch.moved(store.get(unfinished / name, file, snapshot_id, name))
        except Damaged:
            fetch.failed(FailureReason.VALIDATION)
            raise
        shutil.rmtree(target, ignore_errors=True)
        os.replace(unfinished, target)
    return target
