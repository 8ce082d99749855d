"""Real metric servers on loopback for tests: Prometheus, which scrapes, and VictoriaMetrics, which takes OTLP."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.support.otlp_sink import wait_until
from tests.support.programs import program

START_S = 60.0
"""How long a server may take to be ready, on a machine that trains meanwhile."""


@dataclass(frozen=True)
class Sample:
    """One series of a query's result.

    Attributes:
        labels: with the name of the series under `__name__`, where the result has one.
        value: at the time that was asked for.
    """

    labels: Mapping[str, str]
    value: float


class MetricServer:
    """A server that answers PromQL under `/api/v1`.

    Attributes:
        url: its base.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """The result of an expression.

        Args:
            expression: PromQL whose result is a vector or a number.
            at: Unix seconds; now without it.

        Raises:
            ValueError: with the server's own words where it does not understand the expression.
        """
        # Left to itself, VictoriaMetrics takes the beginning of the second for now.
        result = self.api("query", query=expression, time=f"{time.time() if at is None else at:.3f}")
        if result["resultType"] == "scalar":
            return [Sample({}, float(result["result"][1]))]
        return [Sample(series["metric"], float(series["value"][1])) for series in result["result"]]

    def course(self, expression: str, start: float, end: float, step_s: float = 1.0) -> list[tuple[Any, list[float]]]:
        """The labels and values of each series over a while, in order of time."""
        result = self.api("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step_s}")
        return [(series["metric"], [float(value) for _, value in series["values"]]) for series in result["result"]]

    def names(self) -> set[str]:
        """The names of all series that the server has."""
        return set(self.api("label/__name__/values"))

    def api(self, path: str, **parameters: str) -> Any:
        """What the API gives as `data`."""
        return json.loads(self.text(path, **parameters))["data"]

    def text(self, path: str, **parameters: str) -> str:
        """What the API gives."""
        # VictoriaMetrics keeps answers for a while, and would not show what came since.
        question = urllib.parse.urlencode({**parameters, "nocache": "1"})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{question}", timeout=START_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None


class Prometheus(MetricServer):
    """Scrapes what stands in the target files, each second."""

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing."""
        return self.api("alerts")["alerts"]

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes, with `health` and `lastError`."""
        return self.api("targets")["activeTargets"]


class VictoriaMetrics(MetricServer):
    """Takes OTLP over http/protobuf under `otlp` (for `OTEL_EXPORTER_OTLP_ENDPOINT`)."""

    @property
    def otlp(self) -> str:
        return f"{self.url}/opentelemetry"

    def settled_query(self, expression: str) -> list[Sample]:
        """The result about all that was received so far."""
        self.settle()
        return self.query(expression)

    def settle(self) -> None:
        """Makes all that was received visible to queries."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=START_S).read()


@contextmanager
def prometheus(folder: Path, *, targets: Sequence[str] = (), rules: Sequence[Path] = ()) -> Iterator[Prometheus]:
    """Prometheus, ready, with its data and its log in `folder`.

    Args:
        folder: exists, and is empty.
        targets: paths or patterns of `file_sd` files that say what it scrapes.
        rules: files of rules, which it evaluates each second.
    """
    found = [{"job_name": "training", "file_sd_configs": [{"files": [*targets], "refresh_interval": "1s"}]}]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": found if targets else [],
    }
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))

    def command(port: int) -> list[str]:
        return [
            program("prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--web.console.templates={folder}",
            f"--web.console.libraries={folder}",
        ]

    with _serving(command, folder / "prometheus.log", "-/ready") as url:
        yield Prometheus(url)


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[VictoriaMetrics]:
    """VictoriaMetrics, ready, with its data and its log in `folder`, which exists."""

    def command(port: int) -> list[str]:
        return [
            program("victoria-metrics"),
            f"-storageDataPath={folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-opentelemetry.usePrometheusNaming",
            "-search.latencyOffset=0s",  # else queries leave out the last 30 seconds
        ]

    with _serving(command, folder / "victoria-metrics.log", "health") as url:
        yield VictoriaMetrics(url)


@contextmanager
def _serving(command: Callable[[int], list[str]], log: Path, ready: str) -> Iterator[str]:
    """The base URL of a server that runs until the end. It is started again where another program took its port."""
    for last_try in (False, False, True):
        url = f"http://127.0.0.1:{(port := _free_port())}"
        with log.open("w") as lines:
            process = subprocess.Popen(command(port), stdout=lines, stderr=lines)
        try:
            wait_until(partial(_ready_or_ended, f"{url}/{ready}", process), START_S)
            if process.poll() is None:
                yield url
                return
            assert not last_try, f"it ended by itself: {log.read_text()}"
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _ready_or_ended(url: str, process: subprocess.Popen[bytes]) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(url, timeout=START_S).status == 200
    return process.poll() is not None
