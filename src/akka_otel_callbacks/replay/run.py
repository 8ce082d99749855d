"""A log as past runs: what each of them published, had it had the telemetry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.common.vocabulary.step import SFTStep, Step
from akka_otel_callbacks.replay import trl_steps, verl_steps
from akka_otel_callbacks.replay.formats import FORMATS, Format, files_of
from akka_otel_callbacks.replay.history import runs
from akka_otel_callbacks.replay.log import Log, Row, Unreadable, config_of
from akka_otel_callbacks.replay.timeline import Timeline, timeline
from akka_otel_callbacks.trl.vocabulary import EVAL, eval_set, is_evaluation
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.settings import planned_steps, run_attributes

ENGINES: Mapping[str, ModuleType] = {names.RunEngine.TRL: trl_steps, names.RunEngine.VERL: verl_steps}
SUFFIXES = {".gz", ".json", ".jsonl", ".log", ".out", ".txt", ".trainer_state"}
"""Endings of a log's file that do not belong to its name."""
CHECKPOINT = "checkpoint-"
"""How transformers begins the name of a checkpoint's folder."""


@dataclass(slots=True)
class PastRun:
    """One run of a log.

    Attributes:
        id: made of the log's name and content, so that the same log gives the same run.
        format: of the log, as the registry has it.
        step_type: which kind of training it was.
        timeline: its steps, each with its time.
        before: how many steps the log's run had before its first one here; they are no steps of this log.
        logged: how many of its steps have a row.
        planned: how many it was to have. None where that is not known.
        attributes: what the log says of the run's identity.
        notes: what a person should know of how it was read.
    """

    id: str
    format: str
    step_type: type[Step]
    timeline: Timeline
    before: int
    logged: int
    planned: int | None
    attributes: Mapping[Attribute, Any]
    notes: list[str] = field(default_factory=list)

    @property
    def steps(self) -> list[Step]:
        """The steps that were completed, in their order."""
        return [timed.step for timed in self.timeline.timed if timed.step.number is not None]

    @property
    def count(self) -> int:
        """How many steps the run made from the first to the last in the log, with those that have no row."""
        return max((step.number for step in self.steps if step.number is not None), default=self.before) - self.before

    @property
    def absent(self) -> list[Metric]:
        """The figures of a step that the log never has."""
        found = [declared for declared in fields(self.step_type) if "metric" in declared.metadata]
        return [
            declared.metadata["metric"]
            for declared in found
            if all(getattr(timed.step, declared.name) in (None, {}) for timed in self.timeline.timed)
        ]


def past_runs(paths: Sequence[Path]) -> list[PastRun]:
    """The runs of a log.

    Args:
        paths: its files, or a folder with them. All of them are one log.

    Raises:
        Unreadable: they are no log, or it holds no step.
    """
    format, files = _files(paths)
    log = format.read(files)
    if format.name == names.ReplayFormat.TRAINER_STATE:
        _take_times(log, [path for path in paths if path.is_dir()])
    log.ended_ns = max(file.stat().st_mtime_ns for file in files)
    engine = ENGINES[log.engine]
    found = [_past_run(rows, log, engine, format) for rows in runs(log.rows, engine.completes)]
    found = [run for run in found if run.timeline.timed]
    if not found:
        raise Unreadable(f"{_named(paths)} holds no step: the run ended before its first one was logged")
    _name_apart(found, paths)
    return found


def _files(paths: Sequence[Path]) -> tuple[Format, list[Path]]:
    for path in paths:
        if not path.exists():
            raise Unreadable(f"{path} does not exist")
    found = [files_of(path) for path in paths]
    formats = {format.name: format for format, _ in found}
    if len(formats) > 1:
        said = ", ".join(f"{path} is {format.what}" for path, (format, _) in zip(paths, found, strict=True))
        raise Unreadable(f"The files of one log are of one format, and here {said}")
    return found[0][0], [file for _, files in found for file in files]


def _take_times(log: Log, folders: Sequence[Path]) -> None:
    """The times that a trainer state lacks, from the event files that lie in its folder."""
    events = FORMATS[names.ReplayFormat.TENSORBOARD]
    outputs = [
        folder.parent if folder.name.startswith(CHECKPOINT) else folder for folder in map(Path.absolute, folders)
    ]
    files = [file for output in outputs for file in events.files_in(output)]
    try:
        rows = events.read(files).rows if files else []
    except Unreadable as error:
        log.notes.append(f"The folder has the times of the steps: {error}.")
        return
    times = {_which(row): row.time_ns for row in rows}
    for row in log.rows:
        row.time_ns = times.get(_which(row))


def _which(row: Row) -> tuple[int, str | None]:
    """What identifies a row in two logs of one run: its step, and the set that it evaluated."""
    return row.number, (eval_set(row.values) or EVAL) if is_evaluation(row.values) else None


def _past_run(rows: list[Row], log: Log, engine: ModuleType, format: Format) -> PastRun:
    step_type = engine.kind(rows)
    steps = [*engine.steps(rows, step_type)]
    completed = [row.number for row in rows if engine.completes(row)]
    steps += _unlogged_end(rows, log, step_type, max(completed, default=0))
    planned = log.planned if log.planned is not None else guarded(planned_steps)(config_of(rows))
    return PastRun(
        id=_digest(rows),
        format=format.name,
        step_type=step_type,
        timeline=timeline(steps, log.ended_ns),
        before=_before(completed, log),
        logged=len({*completed}),
        planned=None if planned is None else int(planned),
        attributes=_attributes(rows, log.engine, step_type),
        notes=[*log.notes],
    )


def _unlogged_end(rows: Sequence[Row], log: Log, step_type: type[Step], logged: int) -> Iterator[tuple[Row, Step]]:
    """The last step, where the run went on behind the last one that it logged. transformers logs evaluations, and the
    end of a training, at the step that was completed last."""
    last = log.last or 0
    if log.engine == names.RunEngine.TRL:
        last = max([last, *(row.number for row in rows)])
    if last > logged:
        yield Row(last, {}, rows[-1].time_ns if rows else None), step_type(number=last)


def _before(completed: Iterable[int], log: Log) -> int:
    """The number of the step before the log's first one. A row may stand for several steps: as many as lie between the
    first two. The first release of verl counted from 0."""
    numbers = sorted({*completed})
    if log.first_is_known or not numbers:
        return 0
    first, each = numbers[0], numbers[0] if log.engine == names.RunEngine.TRL else 1
    if len(numbers) > 1:
        each = numbers[1] - first
    return max(first - each, min(first - 1, 0))


def _attributes(rows: Sequence[Row], engine: str, step_type: type[Step]) -> dict[Attribute, Any]:
    config = config_of(rows)
    known = guarded(run_attributes)(config) if config is not None else None
    if known is None and engine == names.RunEngine.VERL and step_type is SFTStep:
        known = {names.ATTR_RUN_METHOD: names.RunMethod.SFT}
    told = {**(known or {}), names.ATTR_RUN_ENGINE: engine}
    if not get(config, "trainer.use_v1"):  # verl's earlier trainers change their configuration after they printed it
        told.pop(names.ATTR_RUN_SETTINGS_SHA, None)
    return told


def _digest(rows: Sequence[Row]) -> str:
    first = rows[0]
    return hashlib.sha256(repr((first.number, sorted(first.values.items(), key=str))).encode()).hexdigest()[:8]


def _name_apart(found: Sequence[PastRun], paths: Sequence[Path]) -> None:
    """Gives each run the log's name. Of several runs, their number too: two may begin alike."""
    name = _named(paths)
    for number, run in enumerate(found, 1):
        run.id = f"{name}-{run.id}" + (f"-{number}" if len(found) > 1 else "")


def _named(paths: Sequence[Path]) -> str:
    """The log's name, for people: that of its file, or of the folder where the file's says nothing."""
    path = paths[0].absolute()
    while path.stem.startswith(("trainer_state", CHECKPOINT, "events.out")):
        path = path.parent
    name = path.name
    # What stands behind any other dot belongs to the name, as in llama-3.1-8b.
    while Path(name).suffix.lower() in SUFFIXES:
        name = Path(name).stem
    return name or "log"
