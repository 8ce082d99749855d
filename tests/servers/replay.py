"""Recorded runs as servers would have them if the runs had lasted hours and were all alive now."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.live import Course, Recording
from tests.support.programs import program
from tests.support.servers import MetricServer, Prometheus, VictoriaMetrics, prometheus, victoria_metrics
from tools.prometheus import Dialect

HISTORY_S = 7 * 3600.0
"""How long each run has lasted. The dashboards and rules look back six hours."""
SCRAPE_S = 60.0
"""How far apart the samples of a series are."""


@dataclass(frozen=True)
class Replay:
    """Both servers.

    Attributes:
        given: what each of them was given, by the dialect of its names.
        now_s: the moment to ask them about, in Unix seconds.
    """

    prometheus: Prometheus
    victoria_metrics: VictoriaMetrics
    given: Mapping[Dialect, tuple[Course, ...]]
    now_s: float

    def server(self, dialect: Dialect) -> MetricServer:
        """The one that has the names of a dialect."""
        return self.prometheus if dialect == "scrape" else self.victoria_metrics


@contextmanager
def replayed(recordings: Sequence[Recording], folder: Path) -> Iterator[Replay]:
    """The runs from the beginning of their recordings on, each stretched to `HISTORY_S`.

    A series holds each value until the next one came, as a scrape sees it, and one that was not there yet begins as
    late. Seconds that a run measured itself stay as they were.

    Args:
        recordings: of the runs, which all end at the same moment here.
        folder: exists, and is empty.
    """
    now_s = time.time() // SCRAPE_S * SCRAPE_S
    for name in ("prometheus", "victoria-metrics"):
        (folder / name).mkdir()
    given: dict[Dialect, tuple[Course, ...]] = {
        "scrape": tuple(_stretched(recordings, lambda each: each.scraped, now_s)),
        "collector": tuple(_stretched(recordings, lambda each: each.pushed, now_s)),
    }
    _backfill(given["scrape"], folder / "prometheus")
    with (
        prometheus(folder / "prometheus") as scraped,
        victoria_metrics(folder / "victoria-metrics") as pushed,
    ):
        _import(given["collector"], pushed)
        yield Replay(scraped, pushed, given, now_s)


def _stretched(
    recordings: Iterable[Recording], courses: Callable[[Recording], Iterable[Course]], now_s: float
) -> Iterator[Course]:
    seen: set[frozenset[tuple[str, str]]] = set()  # Prometheus goes on to ask for what has ended, and counts that
    for recording in recordings:
        factor = HISTORY_S / (recording.ended_s - recording.began_s)
        new = [each for each in courses(recording) if frozenset(each.labels.items()) not in seen]
        seen |= {frozenset(each.labels.items()) for each in new}
        for course in new:
            yield Course(course.labels, tuple(_held(course, recording.ended_s, factor, now_s)))


def _held(course: Course, ended_s: float, factor: float, now_s: float) -> Iterator[tuple[float, float]]:
    """A sample at each scrape from the first one on."""
    moved = [(now_s - (ended_s - at) * factor, value) for at, value in course.samples]
    following = iter([*moved[1:], (float("inf"), 0.0)])
    first, value = moved[0]
    scrape_s, (next_s, next_value) = -(-first // SCRAPE_S) * SCRAPE_S, next(following)
    while scrape_s <= now_s:
        while next_s <= scrape_s:
            value = next_value
            next_s, next_value = next(following)
        yield scrape_s, value
        scrape_s += SCRAPE_S


def _backfill(courses: Iterable[Course], folder: Path) -> None:
    """Writes Prometheus' own blocks."""
    path = folder / "history.txt"
    with path.open("w") as lines:
        for course in courses:
            labels = ",".join(f"{key}={json.dumps(value)}" for key, value in course.labels.items() if key != "__name__")
            head = f"{course.labels['__name__']}{{{labels}}}"
            lines.writelines(f"{head} {value!r} {at:.0f}\n" for at, value in course.samples)
        lines.write("# EOF\n")
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(path), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _import(courses: Iterable[Course], server: VictoriaMetrics) -> None:
    lines = "\n".join(
        json.dumps(
            {
                "metric": course.labels,
                "values": [value for _, value in course.samples],
                "timestamps": [round(at * 1000) for at, _ in course.samples],
            }
        )
        for course in courses
    )
    request = urllib.request.Request(f"{server.url}/api/v1/import", lines.encode(), method="POST")
    urllib.request.urlopen(request, timeout=60).read()
    server.settle()
