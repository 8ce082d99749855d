"""`akka-otel replay`: publishes a past run from its log, and says what of it there is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.table import count_of, short
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading.words import clock_time
from akka_otel_callbacks.replay.log import Unreadable
from akka_otel_callbacks.replay.publish import NotTaken, Published, publish
from akka_otel_callbacks.replay.run import PastRun, past_runs

TIMES = {
    names.ReplayTimes.LOGGED: "The steps have the times of the log.",
    names.ReplayTimes.ASSUMED: "The log has no times: its last step is put at the last change of its file, and the "
    "steps before it as far apart as they took, or a second where the log does not say that.",
}


def replay(paths: Sequence[Path]) -> None:
    """Publishes the runs of a log. Ends with exit code 2 for what is no log, and 1 where a run made no step or did not
    arrive."""
    try:
        runs = past_runs(paths)
        if len(runs) > 1:
            stdout().print(f"The log holds {len(runs)} runs.")
        files: set[Path] = set()
        for run in runs:
            _report(run, publish(run, os.environ, files))
    except Unreadable as error:
        raise stop(f"{error}.", code=2) from error
    except (NotTaken, OSError) as error:
        raise stop(f"Not all of it arrived: {error}.", code=1) from error


def _report(run: PastRun, published: Published) -> None:
    for line in (_header(run, published), TIMES[run.timeline.source], *run.notes, _absent(run)):
        stdout().print(printable(line, longest=len(line)), soft_wrap=True)
    for target in published.selection.metrics:
        if isinstance(target, FileTarget):
            stdout().print(f"To look at it: akka-otel show {shlex.quote(str(target.path.parent))}", soft_wrap=True)


def _header(run: PastRun, published: Published) -> str:
    timed, name = run.timeline.timed, published.identity.run_id
    evaluations = count_of(sum(one.step.number is None for one in timed), "evaluation")
    if not run.steps:
        return f"{name}: {evaluations}, and no step: the run ended before its first one was logged."
    steps = count_of(run.count, "step", "steps")
    last = f"The last one is number {run.steps[-1].number}, at {clock_time(timed[-1].time_ns)} UTC"
    return f"{name}: {steps}, {run.logged} of them in the log, and {evaluations}. {last}."


def _absent(run: PastRun) -> str:
    absent = ", ".join(short(metric.name) for metric in run.absent)
    return f"Not in the log, and so absent: {absent or 'nothing'}."
