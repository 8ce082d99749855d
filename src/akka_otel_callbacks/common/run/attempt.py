"""Which attempt of its run a training is. A checkpoint carries the run's ID and the attempt's number, as JSON."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.attributes import is_attempt, is_run_id, said, typed
from akka_otel_callbacks.common.run.identity import restarts
from akka_otel_callbacks.common.vocabulary import names

FILE = "akka_otel_run.json"
"""The file's name, beside what an engine saves."""
RUN_ID, NUMBER = "run_id", "attempt"
SAVED_BY = "saved_by"
"""The attempt that saved the checkpoint, if another one has resumed from it since."""
LARGEST_FILE = 4096

_begun: dict[str, int] = {}
"""The last attempt of each run that this process began."""
_beginning = threading.Lock()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One training of a run: the first is number 1."""

    run_id: str
    number: int

    def state(self) -> dict[str, Any]:
        """What is saved of it."""
        return {RUN_ID: self.run_id, NUMBER: self.number}

    @classmethod
    def from_state(cls, state: Any) -> Attempt | None:
        """The attempt that was saved. None for anything that `state` does not return."""
        if not isinstance(state, Mapping):
            return None
        run_id, number = state.get(RUN_ID), state.get(NUMBER)
        return cls(run_id, number) if is_run_id(run_id) and is_attempt(number) else None

    def to_json(self) -> str:
        return json.dumps(self.state())

    @classmethod
    def from_json(cls, text: str | bytes) -> Attempt | None:
        """What `to_json` wrote. None for anything else."""
        try:
            return cls.from_state(json.loads(text))
        except (ValueError, RecursionError):
            return None

    def write(self, folder: Path, saved_by: int | None = None) -> None:
        """Writes it into a checkpoint's folder, whole or not at all.

        Args:
            folder: the checkpoint's.
            saved_by: the number of the attempt that saved the checkpoint, if it is not this one.

        Raises:
            OSError: the file cannot be written.
        """
        path = folder / FILE
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            known = {} if saved_by is None else {SAVED_BY: saved_by}
            unfinished.write_text(json.dumps({**self.state(), **known}))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def read(cls, folder: Path) -> Attempt | None:
        """The attempt that saved the checkpoint, or the last one that resumed from it, as `write` left it. None if
        nothing usable is there."""
        return cls.from_state(_read(folder))

    @classmethod
    def saver(cls, folder: Path) -> Attempt | None:
        """The attempt that saved a checkpoint, as `write` left it. None if nothing usable is there."""
        state = _read(folder)
        if not isinstance(state, Mapping):
            return None
        return cls.from_state({**state, NUMBER: state.get(SAVED_BY, state.get(NUMBER))})


def _read(folder: Path) -> Any:
    path = folder / FILE
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return None
        with path.open("rb") as file:
            return json.loads(file.read(LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None


def begin(
    environ: Mapping[str, str],
    *,
    arguments: Mapping[str, Any] | None = None,
    generated_id: str,
    is_published: Callable[[Attempt], bool],
    resumed: Attempt | None = None,
    before: int = 0,
) -> Attempt:
    """The attempt of a training that begins now. What the user sets wins, in `arguments` or in
    `OTEL_RESOURCE_ATTRIBUTES`. Otherwise a training that resumes from a checkpoint is the next attempt of the
    checkpoint's run, and a further training of a run in this process is that run's next attempt. A number
    under which a live process publishes already is skipped.

    Args:
        environ: the process's environment.
        arguments: attributes given in code, by full name.
        generated_id: the run's ID if nothing else names one.
        is_published: whether a live process publishes an attempt. See `presence.is_published`.
        resumed: what the checkpoint says. None for a training from the start.
        before: how many trainings of this run have already used the attempt number that the user set.
    """
    typed({name: (arguments or {}).get(name) for name in (names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name)})
    run_id = str(said(names.ATTR_RUN_ID, environ, arguments) or (resumed.run_id if resumed else generated_id))
    number = said(names.ATTR_RUN_ATTEMPT, environ, arguments)
    with _beginning:
        last = _begun.get(run_id, 0)
        if number is not None:
            chosen = Attempt(run_id, int(number) + before)
        else:
            saved = resumed.number if resumed is not None and resumed.run_id == run_id else 0
            chosen = _free(Attempt(run_id, max(last, saved, restarts(environ)) + 1), is_published)
        _begun[run_id] = max(last, chosen.number)
    return chosen


def _free(first: Attempt, is_published: Callable[[Attempt], bool]) -> Attempt:
    """The first attempt, from this one on, that no live process publishes."""
    free = first
    while is_published(free):
        free = Attempt(free.run_id, free.number + 1)
    if free != first:
        logger.warning(
            "a live process publishes attempt %d of run %s already, so this training is attempt %d. Trainings that are "
            "no attempts of one run each need an ID of their own: %s in OTEL_RESOURCE_ATTRIBUTES, or run_id=",
            first.number,
            first.run_id,
            free.number,
            names.ATTR_RUN_ID.name,
        )
    return free


def later(first: Attempt | None, second: Attempt | None) -> Attempt | None:
    """If both are of one run, the one with the higher number; otherwise the first."""
    if first is None or second is None:
        return first or second
    return second if second.run_id == first.run_id and second.number > first.number else first
