"""Which snapshots there are: the one place that says so. Here it is an SQLite file; in a company, a service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoint_publisher.manifest import Manifest

RESERVED, PUBLISHED = "reserved", "published"
SCHEMA = """
create table if not exists snapshots (
  snapshot_id text primary key, run_id text, engine_step integer, manifest text, state text)
"""


class Refused(RuntimeError):
    """The catalog has the snapshot otherwise than it is asked for."""


class Catalog:
    """Each call is a transaction of its own, from whichever thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as database:
            database.execute(SCHEMA)

    def reserve(self, manifest: Manifest) -> None:
        """Says that a snapshot is about to be uploaded. To say it again changes nothing."""
        row = (manifest.snapshot_id, manifest.run_id, manifest.engine_step, manifest.to_json(), RESERVED)
        with self._transaction() as database:
            database.execute("insert or ignore into snapshots values (?, ?, ?, ?, ?)", row)

    def acknowledge(self, snapshot_id: str) -> None:
        """Makes a reserved snapshot a published one, durably. Raises Refused."""
        with self._transaction() as database:
            changed = database.execute(
                "update snapshots set state = ? where snapshot_id = ?", (PUBLISHED, snapshot_id)
            ).rowcount
        if not changed:
            raise Refused(f"{snapshot_id} was never reserved")

    def is_published(self, snapshot_id: str) -> bool:
        return snapshot_id in self._select("select snapshot_id from snapshots where state = ?", PUBLISHED)

    def has(self, run_id: str, engine_step: int) -> bool:
        """Whether it knows a snapshot of that step, published or about to be."""
        return bool(self._select("select 1 from snapshots where run_id = ? and engine_step = ?", run_id, engine_step))

    def latest(self, run_id: str) -> str | None:
        """The newest published snapshot of a run."""
        found = self._select(
            "select snapshot_id from snapshots where state = ? and run_id = ? order by engine_step desc limit 1",
            PUBLISHED,
            run_id,
        )
        return str(found[0]) if found else None

    def _select(self, query: str, *values: object) -> list[object]:
        with self._transaction() as database:
            return [row[0] for row in database.execute(query, values)]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self._path, timeout=30)
        try:
            with database:
                yield database
        finally:
            database.close()
