"""The service's state, in one SQLite file that all of its instances share."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from akka_otel_callbacks.service import Claim, ClaimState, Pool, RunPhase, RunProgress, ServiceState

TABLES = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, devices INTEGER, engine TEXT, steps INTEGER,
    project TEXT, phase TEXT, began_s REAL, entered_s REAL, before_cleaning TEXT,
    claim TEXT, instance TEXT, traceparent TEXT, wish TEXT, wished_s REAL
);
CREATE TABLE IF NOT EXISTS pipelines (id TEXT PRIMARY KEY, project TEXT);
CREATE TABLE IF NOT EXISTS cluster (id INTEGER PRIMARY KEY CHECK (id = 1), devices INTEGER);
"""
ENDED = (RunPhase.COMPLETED, RunPhase.FAILED, RunPhase.CANCELLED)


class Refused(ValueError):
    """A request that the service does not take."""


@dataclass(frozen=True)
class Run:
    """A run as the database has it.

    Attributes:
        claim: the state of its claim on devices; None where it has none.
        instance: who follows its job, or did last; None before it had one.
        traceparent: of the request that asked for it, in W3C's form; None where it had none.
    """

    id: str
    devices: int
    engine: str
    steps: int
    progress: RunProgress
    claim: str | None
    instance: str | None
    traceparent: str | None


class Wish(NamedTuple):
    """What somebody wants of a run, and since when."""

    what: Literal["pause", "cancel"]
    accepted_s: float


class Store:
    """What all instances know.

    Args:
        path: the file.
        declared: devices of the one pool.
        quotas: how many of them each project may hold at once.
    """

    def __init__(self, path: Path, declared: int, quotas: dict[str, int]) -> None:
        self._path, self._declared, self._quotas = path, declared, quotas
        with self._transaction() as database:
            for table in filter(str.strip, TABLES.split(";")):
                database.execute(table)

    def add(self, project: str, devices: int, engine: str, steps: int, traceparent: str | None) -> Run:
        """Admits a run. It waits for its devices in a queue. Raises Refused for one that could never have them."""
        most = min(self._declared, self._quotas.get(project, 0))
        if not 0 < devices <= most:
            raise Refused(f"{project} may hold up to {most} devices, and the run asks for {devices}")
        progress = RunProgress.start(project, RunPhase.AWAITING_DEVICES, time.time())
        run = Run(uuid.uuid4().hex[:8], devices, engine, steps, progress, ClaimState.QUEUED, None, traceparent)
        with self._transaction() as database:
            database.execute(
                "INSERT INTO runs VALUES (:id, :devices, :engine, :steps, :project, :phase, :began_s, :entered_s, "
                ":before_cleaning, :claim, NULL, :traceparent, NULL, NULL)",
                {**vars(run), **asdict(progress)},
            )
        return run

    def runs(self, where: str = "TRUE", *values: object) -> list[Run]:
        with self._transaction() as database:
            return [_run(row) for row in database.execute(f"SELECT * FROM runs WHERE {where} ORDER BY began_s", values)]

    def run(self, run_id: str) -> Run:
        """Raises Refused where there is none."""
        found = self.runs("id = ?", run_id)
        if not found:
            raise Refused(f"there is no run {run_id}")
        return found[0]

    def take(self, instance: str) -> Run | None:
        """Grants devices to the run that has waited longest and for which there is room now. The instance that asks
        follows it from here on."""
        with self._transaction() as database:
            held = dict(
                database.execute("SELECT project, sum(devices) FROM runs WHERE claim = 'GRANTED' GROUP BY project")
            )
            for row in database.execute("SELECT * FROM runs WHERE claim = 'QUEUED' ORDER BY entered_s"):
                room = self._declared - sum(held.values())
                left = self._quotas.get(row["project"], 0) - held.get(row["project"], 0)
                if row["devices"] <= min(room, left):
                    database.execute(
                        "UPDATE runs SET claim = 'GRANTED', instance = ? WHERE id = ?", (instance, row["id"])
                    )
                    return self._found(database, row["id"])
        return None

    def move(self, run: Run, to: RunProgress, claim: str | None) -> Run | None:
        """Commits a transition. None where the run is no longer what it was: another instance was quicker."""
        with self._transaction() as database:
            moved = database.execute(
                "UPDATE runs SET phase = ?, entered_s = ?, before_cleaning = ?, claim = ? "
                "WHERE id = ? AND phase = ? AND claim IS ?",
                (to.phase, to.entered_s, to.before_cleaning, claim, run.id, run.progress.phase, run.claim),
            )
            return self._found(database, run.id) if moved.rowcount else None

    def leave_wish(self, run: Run, wish: str) -> bool:
        """Leaves a wish for whoever follows the run. False where there is one already, or nobody who does."""
        with self._transaction() as database:
            left = database.execute(
                "UPDATE runs SET wish = ?, wished_s = ? WHERE id = ? AND wish IS NULL AND claim = 'GRANTED'",
                (wish, time.time(), run.id),
            )
            return bool(left.rowcount)

    def take_wish(self, run: Run) -> Wish | None:
        """The wish, which is to be fulfilled now; None where nobody has one."""
        with self._transaction() as database:
            row = database.execute("SELECT wish, wished_s FROM runs WHERE id = ?", (run.id,)).fetchone()
            if row["wish"] is None:
                return None
            database.execute("UPDATE runs SET wish = NULL, wished_s = NULL WHERE id = ?", (run.id,))
            return Wish(row["wish"], row["wished_s"])

    def begin_pipeline(self, project: str) -> str:
        pipeline = uuid.uuid4().hex[:8]
        with self._transaction() as database:
            database.execute("INSERT INTO pipelines VALUES (?, ?)", (pipeline, project))
        return pipeline

    def end_pipeline(self, pipeline: str) -> None:
        with self._transaction() as database:
            database.execute("DELETE FROM pipelines WHERE id = ?", (pipeline,))

    def read_cluster(self, devices: int) -> None:
        """Keeps what the cluster was found to hold."""
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO cluster VALUES (1, ?)", (devices,))

    def state(self) -> ServiceState:
        """What the gauges show. Everything in it is of one moment."""
        with self._transaction() as database:
            cluster = database.execute("SELECT devices FROM cluster").fetchone()
            claims = database.execute("SELECT project, devices, claim AS state FROM runs WHERE claim IS NOT NULL")
            runs = database.execute("SELECT project, phase, count(*) FROM runs GROUP BY project, phase")
            pipelines = database.execute("SELECT project, count(*) FROM pipelines GROUP BY project")
            return ServiceState(
                pools=[Pool(declared=self._declared, observed=cluster["devices"] if cluster else None)],
                claims=[Claim(**row) for row in claims],
                quotas=self._quotas,
                runs={(project, phase): count for project, phase, count in runs},
                pipelines=dict(map(tuple, pipelines)),
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for this thread and this moment, which has the database for itself: what it reads is still so
        when it writes. It waits for the others' transactions, on this host and within this process."""
        database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        database.row_factory = sqlite3.Row
        try:
            with database:
                database.execute("BEGIN IMMEDIATE")
                yield database
        finally:
            database.close()

    def _found(self, database: sqlite3.Connection, run_id: str) -> Run:
        return _run(database.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone())


def _run(row: sqlite3.Row) -> Run:
    progress = RunProgress(
        project=row["project"],
        phase=row["phase"],
        began_s=row["began_s"],
        entered_s=row["entered_s"],
        before_cleaning=row["before_cleaning"],
    )
    others = {name: row[name] for name in ("id", "devices", "engine", "steps", "claim", "instance", "traceparent")}
    return Run(**others, progress=progress)
