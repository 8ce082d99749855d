"""A run that reports to a real Prometheus and a real VictoriaMetrics at once, and what both had of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.support.otlp_sink import wait_until
from tests.support.points import Point, points_of
from tests.support.servers import Prometheus, VictoriaMetrics, prometheus, victoria_metrics

SCRAPED_S = 60.0
"""How long a scrape may take to come, on a machine that trains meanwhile."""

OF_OTHERS = ("ALERTS", "DCGM_", "ray_")


@dataclass(frozen=True)
class Course:
    """One series as a server has it: its labels with its name, and its values by their times in Unix seconds."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Recording:
    """What is known of one run.

    Attributes:
        scraped: what Prometheus had.
        pushed: what VictoriaMetrics had, and of other programs what Prometheus had: it would scrape that itself.
        files: what the run's own files have: every point, in the order in which it was written.
        began_s: when it began, in Unix seconds.
        ended_s: when it was looked at.
    """

    scraped: tuple[Course, ...]
    pushed: tuple[Course, ...]
    files: tuple[Point, ...]
    began_s: float
    ended_s: float


class Live:
    """The two servers."""

    def __init__(self, scraping: Prometheus, receiving: VictoriaMetrics, folder: Path) -> None:
        self.scraping, self.receiving, self.folder = scraping, receiving, folder

    def variables(self) -> dict[str, str]:
        """The environment of a process that reports to both and to files. Prometheus finds it by the file that it
        writes."""
        return {
            "OTEL_METRICS_EXPORTER": "otlp,prometheus,file",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.receiving.otlp,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",  # as often as Prometheus scrapes
            "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            "AKKA_OTEL_DIR": str(self.runs),
        }

    @property
    def runs(self) -> Path:
        """The folder of all runs' files."""
        return self.folder / "runs"

    def scrape(self, name: str, targets: Iterable[str], **labels: str) -> None:
        """Has Prometheus scrape these, too."""
        written = self.folder / "new.txt"
        written.write_text(json.dumps([{"targets": [*targets], "labels": labels}]))
        written.replace(self.folder / f"{name}.targets.json")

    def wait_for(self, expression: str) -> None:
        """Until both have what the expression asks for."""
        wait_until(lambda: self.scraping.query(expression), SCRAPED_S)
        wait_until(lambda: self.receiving.settled_query(expression), SCRAPED_S)

    def record(self, began_s: float) -> Recording:
        """All that has come since."""
        self.receiving.settle()
        ended_s = time.time()
        lines = (line for path in sorted(self.runs.glob("metrics*.jsonl")) for line in path.open())
        requests = [Parse(line, ExportMetricsServiceRequest()) for line in lines]
        points = [p for index, each in enumerate(requests) for p in points_of(each.resource_metrics, index)]
        scraped = tuple(_scraped(self.scraping, began_s, ended_s))
        others = [course for course in scraped if course.labels["__name__"].startswith(OF_OTHERS)]
        return Recording(
            scraped,
            (*_pushed(self.receiving, began_s, ended_s), *others),
            tuple(point for point in points if point.time_ns >= began_s * 1e9),
            began_s,
            ended_s,
        )


@contextmanager
def live_servers(folder: Path, rules: Iterable[Path] = ()) -> Iterator[Live]:
    """Both, with their data in `folder`, which exists."""
    for name in ("prometheus", "victoria-metrics"):
        (folder / name).mkdir()
    targets = [f"{folder}/*.targets.json", f"{folder}/runs/targets-*.json"]
    with (
        prometheus(folder / "prometheus", targets=targets, rules=[*rules]) as scraping,
        victoria_metrics(folder / "victoria-metrics") as receiving,
    ):
        yield Live(scraping, receiving, folder)


def _scraped(server: Prometheus, began_s: float, ended_s: float) -> Iterator[Course]:
    seconds = max(round(ended_s - began_s), 1)
    found = server.api("query", query=f'{{__name__=~".+"}}[{seconds}s]', time=f"{ended_s:.3f}")
    for series in found["result"]:
        yield Course(series["metric"], tuple((at, float(value)) for at, value in series["values"]))


def _pushed(server: VictoriaMetrics, began_s: float, ended_s: float) -> Iterator[Course]:
    # Without an end it leaves out the second that is not over yet.
    range_ = {"match[]": '{__name__!=""}', "start": f"{began_s:.3f}", "end": f"{ended_s + 1:.3f}"}
    for line in server.text("export", **range_).splitlines():
        series = json.loads(line)
        samples = zip(series["timestamps"], series["values"], strict=True)
        yield Course(series["metric"], tuple((at / 1000, value) for at, value in samples if at / 1000 <= ended_s))
