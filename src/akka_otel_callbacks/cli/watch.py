"""`akka-otel watch`: a run in the terminal while it trains."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.table import essentials, figure, short
from akka_otel_callbacks.cli.view import course, header, view
from akka_otel_callbacks.common.export.selection import runs_folder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.reading import Run
from akka_otel_callbacks.reading.ending import How
from akka_otel_callbacks.reading.follower import Follower, is_over

LOOK_S = 1.0
"""Between two looks at the files, to which a run writes every two seconds at most."""
ESSENTIAL: Sequence[Metric] = (
    names.RL_STEP_REWARD,
    names.RL_STEP_REWARD_TERM,
    names.RL_EVAL_REWARD,
    names.SFT_STEP_LOSS,
    names.SFT_EVAL_LOSS,
    names.RL_STEP_COMPLETION_LENGTH,
    names.RL_STEP_COMPLETION_CLIPPED_RATIO,
    names.RL_STEP_ENTROPY,
    names.RL_STEP_KL,
    names.RL_STEP_FRAC_REWARD_ZERO_STD,
    names.RL_STEP_LOSS,
    names.RL_STEP_GRAD_NORM,
    names.SFT_STEP_GRAD_NORM,
    names.RL_STEP_TIMING,
    names.RL_STEP_THROUGHPUT,
    names.SFT_STEP_THROUGHPUT,
    names.RL_STEP_MFU,
    names.SFT_STEP_MFU,
    names.STEP_MEMORY,
    names.TELEMETRY_NONFINITE,
)
"""What tells at a glance whether a run is alive and learns, the most telling first."""
TOLD = (names.RL_STEP_REWARD, names.SFT_STEP_LOSS, names.RL_STEP_LOSS)
"""What a line about a step says of it, where there is no terminal to draw on."""
GOOD = (How.FINISHED, How.PAUSED)


def watch(path: Path | None) -> bool:
    """Shows the run until it is over, then as `akka-otel show` does. An interrupt ends the watching, not the run.

    Args:
        path: a run's file or folder, or a folder of runs. None stands for the folder that runs write to, which may not
            be there yet.

    Returns:
        False where the run failed, was interrupted, or its process is gone.
    """
    if path is not None and not path.exists():
        raise stop(f"{path} does not exist.", code=2)
    console, follower = stdout(), Follower(path or runs_folder(os.environ))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which would leave the terminal without its cursor
    try:
        can_draw = console.is_terminal and not console.is_dumb_terminal
        run = _live(follower, console) if can_draw else _lines(follower, console)
    except KeyboardInterrupt:
        return True
    console.print(view(run, console.width))
    if run.is_replayed:
        console.print("This is a past run, read from a log. Nothing more will come.", style="dim", soft_wrap=True)
    return is_well(run)


def is_well(run: Run) -> bool:
    """Whether a run that is over ended as it should, as far as is known: no log tells how a past run ended."""
    return run.ending.how in GOOD or run.is_replayed


def _live(follower: Follower, console: Console) -> Run:
    """Drawn anew at each look. `Live` gives the terminal back as it was, whatever ends it."""
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        for run in _looks(follower):
            live.update(_picture(run, follower, console), refresh=True)
            if run is not None and is_over(run):
                return run
    raise AssertionError


def _lines(follower: Follower, console: Console) -> Run:
    """A line for each look that found a new step."""
    told: int | None = -1
    if follower.look() is None and not follower.unreadable:
        console.print(_waiting(follower), soft_wrap=True)
    for run in _looks(follower):
        if run is not None and run.step != told:
            told = run.step
            console.print(" · ".join([*course(run), *_latest(run)]), soft_wrap=True)
        if run is not None and is_over(run):
            return run
    raise AssertionError


def _looks(follower: Follower) -> Iterator[Run | None]:
    while True:
        run = follower.look()
        stop_where_unreadable(follower, run)
        if run is not None and is_over(run):
            run = follower.look()  # what its process wrote between our reading and its end
        yield run
        time.sleep(LOOK_S)


def stop_where_unreadable(follower: Follower, run: Run | None) -> None:
    """Ends the watching where there is something, but it cannot be read: that does not pass by waiting.

    Raises:
        Exit: it is so.
    """
    if run is None and follower.unreadable:
        raise stop(follower.unreadable, code=2)


def _waiting(follower: Follower) -> str:
    return f"Waiting for a run in {printable(str(follower.path), longest=len(str(follower.path)))}"


def _picture(run: Run | None, follower: Follower, console: Console) -> RenderableType:
    if run is None:
        return Text(_waiting(follower))
    above = [*header(run)]
    rows = max(console.height - len(above) - 3, 3)
    shown = [essentials(run.session, ESSENTIAL, console.width, rows)] if run.session else []
    return Group(*above, *shown, Text("Ctrl-C ends the watching, not the run.", style="dim"))


def _latest(run: Run) -> Iterator[str]:
    for metric in TOLD if run.session else ():
        for series in run.session.of(metric) if run.session else ():
            yield f"{short(metric.name)} {figure(series.values[-1])}"
