"""`akka-otel watch --web`: a run as a page that renews itself while it trains."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path

from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.cli.watch import LOOK_S, is_well, stop_where_unreadable
from akka_otel_callbacks.common.export.selection import runs_folder
from akka_otel_callbacks.reading import Run
from akka_otel_callbacks.reading.follower import Follower, is_over
from akka_otel_callbacks.report.history import histories
from akka_otel_callbacks.report.live import LivePage, served


def watch_web(path: Path | None, port: int) -> bool:
    """Serves the page until the run is over and whoever looks has seen its end. An interrupt ends the serving.

    Args:
        path: as for `watch`.
        port: on loopback; 0 for a free one.

    Returns:
        As for `watch`.
    """
    if path is not None and not path.exists():
        raise stop(f"{path} does not exist.", code=2)
    follower, live = Follower(path or runs_folder(os.environ)), LivePage()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = follower.look()
    stop_where_unreadable(follower, run)
    if run is not None and is_over(run):  # a page that ends at once would be of no use
        return _over(follower, run)
    try:
        with served(live, port) as address:
            name = printable(str(follower.path), longest=len(str(follower.path)))
            stdout().print(f"{address} shows the run in {name}. Ctrl-C ends the watching, not the run.", soft_wrap=True)
            return _follow(follower, live)
    except KeyboardInterrupt:
        return True
    except OSError as error:
        raise stop(f"Port {port} cannot be used: {error.strerror}. --port names another.", code=2) from error


def _over(follower: Follower, run: Run) -> bool:
    where = shlex.quote(str(follower.place or follower.path))
    said = f"The run is over: {run.ending}. Its page is what akka-otel report {where} writes."
    stdout().print(printable(said, longest=len(said)), soft_wrap=True)
    return is_well(run)


def _follow(follower: Follower, live: LivePage) -> bool:
    heard, over = 0, False
    while not over:
        run = follower.look()
        stop_where_unreadable(follower, run)
        over = run is not None and is_over(run)
        if over:
            run = follower.look()  # what its process wrote between our reading and its end
        if run is not None and (over or run.newest_ns != heard):
            heard = run.newest_ns
            live.show(histories(follower.runs)[-1:], over=over)
        if not over:
            time.sleep(LOOK_S)
    live.wait_for_readers()
    return run is not None and is_well(run)
