"""Writes a run's ID and attempt into each checkpoint, so that a training that resumes from it continues the run.

verl's trainers save in different ways. What they have in common is the file that names the latest checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.checkpoints.restored import restored
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import AttributeValue
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.settings import is_rl

TRACKER = "latest_checkpointed_iteration.txt"
LONGEST_TRACKER = 64
FOLDER = "global_step_"
"""What the name of a checkpoint's folder has before the step."""
LOOK_S = 2.0
"""The time between two looks for a new checkpoint. If the training is killed so soon after a save, the checkpoint does
not say its attempt."""
ASYNCHRONOUS_LOOK_S = 0.25
"""The same if a look also finds out when a save has ended."""
CLOSE_TIMEOUT_S = 1.0


def resumed(config: Any) -> Attempt | None:
    """The attempt in the checkpoint that a training with this configuration resumes from. None if it starts anew."""
    folder = resumed_folder(config)
    return None if folder is None else Attempt.read(folder)


def resumed_folder(config: Any) -> Path | None:
    """The checkpoint that verl resumes from. None if it starts anew."""
    mode, path = get(config, "trainer.resume_mode", "auto"), get(config, "trainer.resume_from_path")
    if mode == "disable":
        return None
    if path is not None and (mode == "resume_path" or not is_rl(config)):  # "auto" heeds a path in supervised training
        return _local(path)
    return latest(_local(get(config, "trainer.default_local_dir")))


def latest(folder: Path | None) -> Path | None:
    """The newest checkpoint in a folder of them, as verl notes it there."""
    if folder is None:
        return None
    try:
        if not (folder / TRACKER).is_file():  # opening a pipe would wait for its other end
            return None
        with (folder / TRACKER).open("rb") as tracker:
            step = int(tracker.read(LONGEST_TRACKER))
    except (OSError, ValueError):
        return None
    checkpoint = folder / f"{FOLDER}{step}"
    return checkpoint if checkpoint.is_dir() else None


class Keeper(threading.Thread):
    """Writes the attempt into every new checkpoint, and into the one that the training resumed from. So a further
    training that resumes from the same checkpoint is another attempt, even if this one never saves.

    Args:
        config: verl's configuration.
        attempt: the training's.
        look_s: how often it looks for a new checkpoint.
        noted: called with the step of each checkpoint that verl has noted as its latest.
        describe: called once if the training resumes, with the attributes of the checkpoint for the job's span.
    """

    def __init__(
        self,
        config: Any,
        attempt: Attempt,
        look_s: float = LOOK_S,
        noted: Callable[[int], object] = lambda step: None,
        describe: Callable[[Mapping[str, AttributeValue]], object] = lambda attributes: None,
    ) -> None:
        super().__init__(name="akka-otel-checkpoints", daemon=True)
        self._config = config
        self._attempt = attempt
        self._look_s = look_s
        self._tell, self._describe = noted, describe
        self._folder = _local(get(config, "trainer.default_local_dir"))
        self._named = _noted(self._folder)
        self._ended = threading.Event()
        self._failed = False

    @guarded
    def run(self) -> None:
        self._tell_of_remote()
        self._take_resumed()
        while not self._ended.wait(self._look_s):
            self._look()
        self._look()

    def close(self) -> None:
        """Writes the attempt into the last checkpoint, and waits for that for at most a second."""
        self._ended.set()
        if self.is_alive():
            self.join(CLOSE_TIMEOUT_S)

    def _take_resumed(self) -> None:
        """Writes the attempt into the checkpoint that the training resumed from, unless that is of another run."""
        folder = resumed_folder(self._config)
        if folder is None:
            return
        saver = Attempt.saver(folder)
        self._describe(restored(self._attempt, saver, _step_of(folder)))
        if saver is not None and saver.run_id == self._attempt.run_id:
            self._write(folder, saver.number)

    def _look(self) -> None:
        noted = _noted(self._folder)
        newest = latest(self._folder)
        if noted != self._named and newest is not None:
            self._named = noted
            if (step := _step_of(newest)) is not None:
                self._tell(step)
            self._write(newest)

    def _write(self, folder: Path, saved_by: int | None = None) -> None:
        try:
            self._attempt.write(folder, saved_by)
        except OSError as error:
            if not self._failed:
                logger.warning(
                    "cannot write the run's ID into the checkpoint %s: %s. A training that resumes from it will be "
                    "a new run, unless you set %s",
                    folder,
                    error,
                    self._cure,
                )
            self._failed = True

    def _tell_of_remote(self) -> None:
        saved_to = (get(self._config, f"trainer.{key}") for key in ("default_local_dir", "default_hdfs_dir"))
        remote = next((str(place) for place in saved_to if place is not None and _is_remote(place)), None)
        if remote is not None:
            logger.info(
                "the run's ID is in local checkpoints only, not in %s://…. To resume the run from there, set %s",
                remote.partition("://")[0],
                self._cure,
            )

    @property
    def _cure(self) -> str:
        return f"OTEL_RESOURCE_ATTRIBUTES={names.ATTR_RUN_ID.name}={self._attempt.run_id}"


def _step_of(folder: Path) -> int | None:
    """The step that a checkpoint was saved after, by the name that verl gives its folder."""
    prefix, _, step = folder.name.rpartition("_")
    return int(step) if f"{prefix}_" == FOLDER and step.isascii() and step.isdigit() else None


def _noted(folder: Path | None) -> tuple[int, int] | None:
    """What tells verl's note of one save from that of the next, which may be of the same step."""
    try:
        found = (folder / TRACKER).stat() if folder is not None else None
    except (OSError, ValueError):  # a path that no system could name
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)


def _local(place: Any) -> Path | None:
    return None if place is None or _is_remote(place) else Path(str(place)).absolute()


def _is_remote(place: Any) -> bool:
    return "://" in str(place)
