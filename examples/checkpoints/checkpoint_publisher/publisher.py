"""Publishes staged snapshots from a thread of its own. Whatever kills it, the next one goes on where it was."""

from __future__ import annotations

import logging
import threading

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.checkpoints import FailureReason
from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.manifest import File
from checkpoint_publisher.staging import MANIFEST, PAYLOAD, Staged, Staging
from checkpoint_publisher.store import Conflict, Store

RETRY_S = 5.0
logger = logging.getLogger(__name__)


class Publisher:
    """A snapshot leaves the staging folder only when the catalog has acknowledged it, and every step up to there may
    be taken again: so nothing is lost, whenever the process ends."""

    def __init__(self, staging: Staging, store: Store, catalog: Catalog, retry_s: float = RETRY_S) -> None:
        self._staging, self._store, self._catalog, self._retry_s = staging, store, catalog, retry_s
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="checkpoint-publisher", daemon=True)

    def pending(self) -> int:
        """Snapshots that are staged and not durably published, the one in flight included."""
        return sum(not self._catalog.is_published(staged.manifest.snapshot_id) for staged in self._staging.waiting())

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Says that there is something new to publish."""
        self._wake.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Publishes what waits, tried once more, and ends. What is left waits for the next publisher."""
        self._ending = True
        self._wake.set()
        self._thread.join(timeout_s)

    def publish_waiting(self) -> bool:
        """Publishes what waits, in its order. False where something could not be published."""
        published = [self._try(staged) for staged in self._staging.waiting()]
        return all(published)

    def publish(self, staged: Staged) -> None:
        """One snapshot, up to the catalog's acknowledgement."""
        manifest = staged.manifest
        about: checkpoints.About = {
            "snapshot_id": manifest.snapshot_id,
            "artifact_kind": manifest.artifact_kind,
            "storage_mode": self._store.mode,
        }
        with checkpoints.publish(**about):
            with checkpoints.catalog_reserve():
                self._catalog.reserve(manifest)
            self._upload(staged)
            with checkpoints.catalog_acknowledge():
                self._catalog.acknowledge(manifest.snapshot_id)

    def _upload(self, staged: Staged) -> None:
        """The manifest comes last: whoever finds it finds everything that it names."""
        at = staged.manifest.snapshot_id
        with checkpoints.upload() as upload:
            try:
                for name, file in staged.manifest.files.items():
                    upload.moved(self._store.put(staged.folder / PAYLOAD / name, file, at, name))
                manifest = staged.folder / MANIFEST
                upload.moved(self._store.put(manifest, File.of(manifest), at, MANIFEST))
            except Conflict:
                upload.failed(FailureReason.CONFLICT)
                raise

    def _try(self, staged: Staged) -> bool:
        try:
            if not self._catalog.is_published(staged.manifest.snapshot_id):
                self.publish(staged)
            self._staging.remove(staged)
        except Exception as error:  # noqa: BLE001 - a store may fail in any way, and the training goes on
            logger.warning("%s is not published yet: %s: %s", staged.manifest.snapshot_id, type(error).__name__, error)
            return False
        return True

    def _run(self) -> None:
        done = True
        while True:
            self._wake.wait(None if done else self._retry_s)
            self._wake.clear()
            ending = self._ending  # read before the last publication, which then has all that came before the end
            done = self.publish_waiting()
            if ending:
                return
