"""Publishes a past run by the exporters that the environment asks for, at the times of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from akka_otel_callbacks.common.export import exporters
from akka_otel_callbacks.common.export.producer import Run
from akka_otel_callbacks.common.export.push import Push
from akka_otel_callbacks.common.export.selection import Selection, select, without_scrape
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.unsent import MOST_STEPS
from akka_otel_callbacks.common.log import logger, show_to_people
from akka_otel_callbacks.common.recording.observed import Observed
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.run.attributes import otel_resource_attributes, said
from akka_otel_callbacks.common.run.identity import RunIdentity, identify
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.source import Constant
from akka_otel_callbacks.replay.log import Unreadable
from akka_otel_callbacks.replay.run import PastRun

EXPORTS = 256
"""A run is sent in about as many parts, so that its counters and histograms have a course, too."""
OF_THIS_MACHINE = (
    names.ATTR_HOST_NAME.name,
    names.ATTR_PROCESS_PID.name,
    names.ATTR_K8S_POD_NAME.name,
    names.ATTR_K8S_NODE_NAME.name,
)
"""What a running training says of its process. It is not true of a run that ran elsewhere."""


class NotTaken(Exception):
    """A place did not take the figures; the message says which, how much and why."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a run: who it is, and where it went."""

    identity: RunIdentity
    selection: Selection


def publish(run: PastRun, environ: Mapping[str, str], ours: set[Path]) -> Published:
    """Sends every step of a run.

    Args:
        ours: the files that hold the log's earlier runs, to which it adds its own: where `AKKA_OTEL_DIR` names a
            folder, all of them go there.

    Raises:
        Unreadable: its files are there already.
        NotTaken: a collector or a disk did not take them.
    """
    show_to_people()
    environ = without_scrape(environ)  # nobody can scrape the past
    identity = identify_past(run, environ)
    selection = select(environ, identity.folder)
    for warning in selection.warnings:
        logger.warning("%s", warning)
    for file in {target.path for target in selection.metrics if isinstance(target, FileTarget)} - ours:
        if file.exists() and file.stat().st_size:
            raise Unreadable(f"{file} has figures already. Remove them, or name another folder in AKKA_OTEL_DIR")
        ours.add(file)
    exporters.load_sdk()
    steps = Steps(run.step_type)
    past = Run(
        identity.resource(),
        run.timeline.start_ns,
        _known(run),
        steps,
        is_live=False,
    )
    outputs = [output for output in exporters.open_metrics(selection) if output.exporter is not None]
    pushes = [Push(output.exporter, past, output.target) for output in outputs if output.exporter is not None]
    try:
        _send(run, steps, pushes)
    finally:
        for push, output in zip(pushes, outputs, strict=True):
            push.close()
            output.close()
    return Published(identity, selection)


def identify_past(run: PastRun, environ: Mapping[str, str]) -> RunIdentity:
    """Who the run was, by its log and by what a person says in `OTEL_RESOURCE_ATTRIBUTES`."""
    engine = {
        **run.attributes,
        names.ATTR_REPLAY_FORMAT: run.format,
        names.ATTR_REPLAY_TIMES: run.timeline.source,
    }
    run_id = str(said(names.ATTR_RUN_ID, environ) or run.id)
    found = identify(environ, engine=engine, run_id=run_id, attempt=1)
    own = otel_resource_attributes(environ)
    kept = {name: value for name, value in found.attributes.items() if name not in OF_THIS_MACHINE or name in own}
    return RunIdentity(kept)


def _known(run: PastRun) -> Observed:
    observed = Observed()
    if run.planned is not None:
        planned = Constant(names.JOB_STEPS_PLANNED, run.planned)
        observed.add(names.JOB_STEPS_PLANNED, lambda: planned.points(names.JOB_STEPS_PLANNED))
    return observed


def _send(run: PastRun, steps: Steps, pushes: list[Push]) -> None:
    """A receiver that misses a part stops the rest: a run with a hole would look like a run that stalled."""
    timed, before = run.timeline.timed, run.before
    each = min(max(1, math.ceil(len(timed) / EXPORTS)), MOST_STEPS)
    for index, (time_ns, step) in enumerate(timed, 1):
        if step.number is not None:
            steps.recorder.steps += max(step.number - before - 1, 0)  # those of which the log has no row
            before = max(step.number, before)
        steps.recorder.reported_ns = time_ns
        steps.recorder.record(step)
        if index % each == 0 or index == len(timed):
            for push in pushes:
                if not push.export():
                    raise NotTaken(push.missing(0, ended=True) or "a part of the figures did not arrive")
