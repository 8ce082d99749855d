"""A run, as its files tell of it: what its processes exported, its spans, its warnings, and how it ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.attributes import Labels
from akka_otel_callbacks.reading.ending import NO_END, Ending, ending
from akka_otel_callbacks.reading.log_records import LogRecord, warnings
from akka_otel_callbacks.reading.points import Export
from akka_otel_callbacks.reading.sessions import STEP_COUNTS, Session, Sessions
from akka_otel_callbacks.reading.spans import Branch, Span, Traces

STEP_NUMBERS = (names.RL_STEP_NUMBER, names.SFT_STEP_NUMBER)
Identity = tuple[str, ...]


@dataclass(slots=True)
class Run:
    """One attempt of a training, or whatever else exported telemetry under one identity.

    Attributes:
        resource: of the process that trains.
        session: what that process exported. None where only its spans or log records are there.
        others: the sessions of the run's further processes, such as verl's workers.
        traces: its spans by trace ID, as trees.
        records: its warnings and errors, oldest first.
        ending: how it ended.
        job: the span of the training. None without one.
    """

    resource: Mapping[str, str]
    session: Session | None = None
    others: list[Session] = field(default_factory=list)
    traces: Mapping[str, Branch] = field(default_factory=dict)
    records: Sequence[LogRecord] = ()
    ending: Ending = NO_END
    job: Span | None = None

    @property
    def name(self) -> str:
        """The run's ID, or of something else its service's name."""
        named = self.resource.get(names.ATTR_RUN_ID.name) or self.resource.get(names.ATTR_SERVICE_NAME.name)
        return named or "unnamed run"

    @property
    def sessions(self) -> list[Session]:
        return [*([self.session] if self.session else []), *self.others]

    @property
    def is_training(self) -> bool:
        """Or something else that exported to the same Collector, as a judge's server."""
        return names.ATTR_RUN_ID.name in self.resource

    @property
    def is_replayed(self) -> bool:
        """Whether it is a past run that was read from a log."""
        return names.ATTR_REPLAY_FORMAT.name in self.resource

    @property
    def start_ns(self) -> int:
        """When it began, in Unix nanoseconds; 0 where nothing tells it."""
        known = [self.job.start] if self.job else [session.oldest for session in self.sessions if session.oldest]
        return min(known, default=0)

    @property
    def newest_ns(self) -> int:
        """When it ended, or where no end is recorded when it was last heard of; 0 where nothing tells it."""
        return self.ending.time_ns or max((session.newest for session in self.sessions), default=0)

    @property
    def step(self) -> int | None:
        """The number of the latest step, as the engine numbers them. None before the first."""
        return self._latest(STEP_NUMBERS) or self._latest(STEP_COUNTS)

    @property
    def planned(self) -> int | None:
        """The number of the last step that is planned. None where it is not known."""
        return self._latest((names.JOB_STEPS_PLANNED,))

    def _latest(self, metrics: Iterable[Any]) -> int | None:
        found = [series for metric in metrics for series in (self.session.of(metric) if self.session else ())]
        values = [series.values[-1] for series in found if series.values]
        return int(values[0]) if values and values[0] == values[0] // 1 else None

    def steps(self) -> Steps:
        """Which step it was at which time."""
        for metric in STEP_NUMBERS:
            for series in self.session.of(metric) if self.session else ():
                return Steps(series.times, series.values)
        return Steps((), ())


@dataclass(frozen=True, slots=True)
class Steps:
    """The times at which steps were reported, in Unix nanoseconds and ascending, and the steps' numbers."""

    times: Sequence[int]
    numbers: Sequence[float]

    def at(self, time_ns: int) -> float | None:
        """The number of the latest step that was reported by then. A figure of a step has the time of its step. None
        before the first."""
        position = bisect_right(self.times, time_ns)
        return self.numbers[position - 1] if position else None


class Runs:
    """Sorts what files hold into runs, by the resource that says who wrote it."""

    def __init__(self) -> None:
        self._sessions = Sessions()
        self._traces: dict[Identity, Traces] = {}
        self._records: dict[Identity, list[LogRecord]] = {}
        self._resources: dict[Identity, Mapping[str, str]] = {}

    def add_export(self, export: Export) -> None:
        self._sessions.add(export)

    def add_spans(self, found: tuple[Labels, Iterable[Mapping[str, Any]]]) -> None:
        resource, spans = found
        self._traces.setdefault(self._identity(resource), Traces()).add(spans)

    def add_records(self, found: tuple[Labels, Iterable[Mapping[str, Any]]]) -> None:
        resource, records = found
        self._records.setdefault(self._identity(resource), []).extend(warnings(records))

    def _identity(self, resource: Labels) -> Identity:
        found = dict(resource)
        identity = identify(found)
        self._resources.setdefault(identity, found)
        return identity

    def all(self) -> list[Run]:
        """Them, the newest last."""
        by_identity: dict[Identity, list[Session]] = {identity: [] for identity in self._resources}
        for session in self._sessions.all():
            by_identity.setdefault(identify(session.resource), []).append(session)
        found = [run for identity, sessions in by_identity.items() for run in self._of(identity, sessions)]
        return sorted(found, key=lambda run: run.newest_ns)

    def _of(self, identity: Identity, sessions: list[Session]) -> list[Run]:
        """One for each training, which may have been started twice under one identity. The other processes are shown
        with the newest."""
        trainings = [session for session in sessions if any(map(session.of, STEP_COUNTS))]
        trainings = trainings or sorted(sessions, key=_likeness)[-1:]
        others = [session for session in sessions if session not in trainings]
        traces, records = self._traces.get(identity), sorted(self._records.get(identity, ()))
        trees, jobs = (traces.trees(), traces.jobs) if traces else ({}, [])
        runs = [
            Run(session.resource, session, [], trees, records, ending(job := _job(session, jobs), records), job)
            for session in trainings
        ]
        if not runs:
            job = jobs[-1] if jobs else None
            runs = [Run(self._resources[identity], None, [], trees, records, ending(job, records), job)]
        runs[-1].others = others
        return runs


def identify(resource: Mapping[str, str]) -> Identity:
    """Which run a resource is of: by its ID and attempt, and of something else by service and instance."""
    by_run = (names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name)
    by_service = (names.ATTR_SERVICE_NAME.name, names.ATTR_SERVICE_INSTANCE_ID.name)
    is_of_run = names.ATTR_RUN_ID.name in resource
    return tuple(resource.get(name, "") for name in (by_run if is_of_run else by_service))


def _likeness(session: Session) -> tuple[bool, int]:
    """How likely it is that of the process that trains, before its first step."""
    return bool(session.of(names.JOB_STEPS_PLANNED)), len(session.series)


def _job(session: Session, jobs: Sequence[Span]) -> Span | None:
    """The span of the training that a session is of. A process may also evaluate before and after it trains, which are
    jobs with spans of their own. One step may be told after the span's end, by an export that comes later."""
    steps = _steps_told(session)
    if not steps:
        of_it = [job for job in jobs if job.start <= session.newest]
    else:
        known = [job for job in jobs if job.start <= steps[-1] and job.end >= session.oldest]
        of_it = [job for job in known if all(step <= job.end for step in steps[-2:-1])]
    return of_it[-1] if of_it else None


def _steps_told(session: Session) -> list[int]:
    """When each step's number was told first, ascending."""
    told: dict[float, int] = {}
    for series in chain.from_iterable(map(session.of, STEP_NUMBERS)):
        for time, number in zip(series.times, series.values, strict=True):
            told.setdefault(number, time)
    return sorted(told.values())
