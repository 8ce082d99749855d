"""A run as a person sees it: who it is and how it ended, its figures, its spans and its warnings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.cli.story import story
from akka_otel_callbacks.cli.table import count_of, tables
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.reading import Run, Session
from akka_otel_callbacks.reading.ending import How
from akka_otel_callbacks.reading.follower import is_gone, seems_to_run
from akka_otel_callbacks.reading.words import clock_time, duration

TITLE = (names.ATTR_RUN_ENGINE, names.ATTR_RUN_METHOD, names.ATTR_RUN_BASE_MODEL)
SETTINGS = (
    names.ATTR_RUN_LEARNING_RATE,
    names.ATTR_RUN_GROUP_SIZE,
    names.ATTR_RUN_LORA_RANK,
    names.ATTR_RUN_SETTINGS_SHA,
)
PROCESS = (names.ATTR_SERVICE_NAME, names.ATTR_SERVICE_INSTANCE_ID)
NAMED = 4
"""Further processes that a line names at most."""


def view(run: Run, width: int, *, every_process: bool = False) -> RenderableType:
    """Everything that is known of it, for a terminal of that many columns. Of the further processes of a training there
    are the names, or on demand their series."""
    parts: list[RenderableType] = [*header(run)]
    if run.session:
        parts += tables(run.session, width)
    for session in run.others if every_process else ():
        parts += [Text(f"process {_process(session)}", style="bold"), *tables(session, width)]
    parts += story(run)
    return Group(*parts)


def header(run: Run) -> Iterator[Text]:
    """Who it is, how it ended, its settings and its further processes, in a line each."""
    yield Text(" · ".join(map(printable, title(run))), style="bold")
    yield Text(" · ".join([*course(run), *_extent(run)]))
    if settings := [f"{_last(setting)} {printable(run.resource[setting.name])}" for setting in _said(run)]:
        yield Text(" · ".join(settings))
    if run.others and run.session:
        processes = ", ".join(_process(session) for session in run.others[:NAMED]) + ", …" * (len(run.others) > NAMED)
        yield Text(f"{count_of(len(run.others), 'more process', 'more processes')} (--all shows them): {processes}")


def title(run: Run) -> Iterator[str]:
    """The run's name. The number of the attempt is added only if there are several."""
    yield run.name
    attempt = run.resource.get(names.ATTR_RUN_ATTEMPT.name, "1")
    if attempt != "1":
        yield f"attempt {attempt}"
    for attribute in TITLE:
        if value := run.resource.get(attribute.name):
            yield value.rpartition("/")[2]


def course(run: Run) -> Iterator[str]:
    """How it goes, or how it ended, and how far it came."""
    yield "running" if seems_to_run(run, time.time_ns()) else printable(str(run.ending))
    if run.ending.how is How.UNKNOWN and run.newest_ns:
        gone = ", its process is gone" if is_gone(run) else ""
        yield f"last heard of {duration((time.time_ns() - run.newest_ns) // 10**9)} ago{gone}"
    if run.step is not None:
        yield f"step {run.step}" + (f" of {run.planned}" if run.planned else "")
    if run.start_ns:
        yield f"took {duration((run.newest_ns - run.start_ns) / 1e9)}"


def _extent(run: Run) -> Iterator[str]:
    if run.start_ns:
        yield f"began {clock_time(run.start_ns)} UTC"
    if run.session:
        yield count_of(run.session.exports, "export")


def _said(run: Run) -> Iterator[Attribute]:
    return (setting for setting in SETTINGS if setting.name in run.resource)


def _last(attribute: Attribute) -> str:
    return attribute.name.rpartition(".")[2]


def _process(session: Session) -> str:
    resource: Mapping[str, str] = session.resource
    return printable(next((resource[name.name] for name in reversed(PROCESS) if name.name in resource), "unnamed"))
