"""Publishes two snapshots and restores them, in children that are killed at every point of the example and followed by
one that goes on. Prints what was found, as JSON.

Arguments: the folder to work in, the URL to publish to, and which of every how many points to be killed at; 1 for all.

A point is a line of the example's, the first and the last time that it is about to run, or one of the library that
copies its folders, the first time. Of points that leave the same files behind, one is enough: a killed process leaves
nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import checkpoint_publisher
import fsspec
from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.publisher import Publisher
from checkpoint_publisher.restore import restore
from checkpoint_publisher.staging import Staging
from checkpoint_publisher.store import Store

RUN_ID, STEPS = "run", (1, 2)
EXAMPLE = str(Path(checkpoint_publisher.__file__).parent)
TRACED = (EXAMPLE, shutil.__file__)


class Place:
    """One attempt's folders and its part of the store."""

    def __init__(self, work: Path, url: str) -> None:
        self.work, self.url = work, url
        self.native, self.restored = work.parent / "native", work / "restored"

    def parts(self) -> tuple[Staging, Catalog, Publisher]:
        staging, catalog = Staging(self.work / "staging"), Catalog(self.work / "catalog.db")
        return staging, catalog, Publisher(staging, Store(self.url, **options()), catalog)


def options() -> dict[str, Any]:
    endpoint = os.environ.get("TEST_ENDPOINT")
    return {"endpoint_url": endpoint} if endpoint else {}


def work(place: Place) -> None:
    """What a training and a restore after it do."""
    staging, catalog, publisher = place.parts()
    staging.clean()
    for step in STEPS:
        if not catalog.has(RUN_ID, step):
            checkpoint = place.native / f"checkpoint-{step}"
            staging.stage(checkpoint, run_id=RUN_ID, attempt=1, engine_step=step, artifact_kind="full_state")
    assert publisher.publish_waiting()
    for step in STEPS:
        newest = catalog.latest(RUN_ID) if step == STEPS[-1] else of_step(place, step)
        restore(str(newest), place.restored, Store(place.url, **options()), catalog, restore_mode="resume")


def of_step(place: Place, step: int) -> str:
    query = "select snapshot_id from snapshots where engine_step = ?"
    return str(rows(place, query, step)[0])


def rows(place: Place, query: str, *values: Any) -> list[Any]:
    if not (place.work / "catalog.db").exists():
        return []
    database = sqlite3.connect(place.work / "catalog.db")
    try:
        return [row[0] for row in database.execute(query, values)]
    except sqlite3.OperationalError:  # it was killed before the table was made
        return []
    finally:
        database.close()


def expected_pending(place: Place) -> int:
    """From the folders and the table themselves."""
    published = set(rows(place, "select snapshot_id from snapshots where state = 'published'"))
    staged = {path.name for path in (place.work / "staging").glob("*") if not path.name.endswith(".unfinished")}
    return len(staged - published)


def in_child(action: Callable[[], None]) -> int:
    """The signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except Exception as error:  # noqa: BLE001 - the parent is told of any
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "a child failed"
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def traced(place: Place, at_line: Callable[[tuple[str, int]], None]) -> None:
    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        if event == "line":
            at_line((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    work(place)
    sys.settrace(None)


def killed_at(place: Place, point: int) -> None:
    passed = 0

    def at_line(line: tuple[str, int]) -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    traced(place, at_line)


class Passed(NamedTuple):
    """A line that was about to run, and a hash of the files that were there."""

    line: tuple[str, int]
    files: str


def points(place: Place) -> dict[str, list[int]]:
    """Of each line the first and the last time, and of these the ones before which the files had changed."""
    seen: list[Passed] = []
    traced(place, lambda line: seen.append(Passed(line, files_of(place))))
    first = {passed.line: point for point, passed in reversed([*enumerate(seen, 1)])}
    last = {passed.line: point for point, passed in enumerate(seen, 1) if passed.line[0].startswith(EXAMPLE)}
    every = sorted({*first.values(), *last.values()})
    different = {seen[point - 1].files: point for point in reversed(every)}
    return {"every": every, "different": sorted(different.values())}


def files_of(place: Place) -> str:
    """Of an object store's only what is in a local folder."""
    folders = [place.work, *([] if "://" in place.url else [Path(place.url)])]
    found = [(str(path), path.is_file() and path.read_bytes()) for folder in folders for path in folder.rglob("*")]
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(place: Place) -> None:
    """Everything is published and restored as it was saved, and nothing else is there."""
    file_system, root = fsspec.core.url_to_fs(place.url, **options())
    for step in STEPS:
        native = content(place.native / f"checkpoint-{step}")
        assert content(place.restored / f"checkpoint-{step}") == native
        at = f"{root}/{of_step(place, step)}"
        names = {path.removeprefix(f"{at}/") for path in file_system.find(at)}
        assert {name for name in names if not name.endswith(".unfinished")} == {*native, "manifest.json"}
        assert {name: file_system.cat_file(f"{at}/{name}") for name in native} == native
    assert sorted(path.name for path in place.restored.iterdir()) == [f"checkpoint-{step}" for step in STEPS]
    assert [*(place.work / "staging").iterdir()] == []
    assert len(rows(place, "select snapshot_id from snapshots")) == len(STEPS)


def main(folder: Path, url: str, every: int) -> None:
    for step in STEPS:
        checkpoint = folder / "native" / f"checkpoint-{step}"
        (checkpoint / "shard").mkdir(parents=True)
        for name in ("model.bin", "trainer_state.json", "shard/optimizer.bin"):
            (checkpoint / name).write_bytes(f"{name} of {step}".encode() * 1000)
    dry = folder / "dry"
    found = folder / "points.json"
    in_child(lambda: void(found.write_text(json.dumps(points(Place(dry, f"{url}/dry"))))))
    kills, pendings = 0, set()
    known = json.loads(found.read_text())
    chosen = known["different"] if every == 1 else known["every"][::every]
    for point in chosen:
        place = Place(folder / f"killed-{point}", f"{url}/{point}")
        assert in_child(lambda place=place, point=point: killed_at(place, point)) == signal.SIGKILL
        pendings.add(expected_pending(place))
        in_child(lambda place=place: void(same_pending(place), work(place), check(place), same_pending(place)))
        assert expected_pending(place) == 0
        kills += 1
        shutil.rmtree(place.work)
    print(json.dumps({"points": len(known["every"]), "kills": kills, "pending": sorted(pendings)}))


def same_pending(place: Place) -> None:
    ours, expected = place.parts()[2].pending(), expected_pending(place)
    assert ours == expected, (ours, expected)


def void(*_: Any) -> None: ...


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
