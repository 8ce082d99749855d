"""The example of a service: two real instances on one database, real trainings, scraped while they work."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.reading import Reader
from tests.support.otlp_sink import wait_until
from tools.prometheus import label_name, series_name

pytest.importorskip("trl", reason="the service's jobs train with TRL")
pytest.importorskip("starlette", reason="the service is an ASGI application")
pytest.importorskip("uvicorn", reason="it is what serves it")
parser = pytest.importorskip("prometheus_client.parser", reason="the service is scraped")

APP = Path(__file__).parents[2] / "examples" / "service" / "app.py"
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
JOB_S = 240
"""For a training of one step on a machine that is busy with others."""
QUOTAS = {"triage": 2, "commits": 1}
SERVICE_ATTRIBUTES = {attribute for metric in names.SERVICE_METRICS for attribute in metric.attributes}
LABEL = {attribute: label_name(attribute.name, "scrape") for attribute in SERVICE_ATTRIBUTES}
CAPACITY = [metric for metric in names.SERVICE_METRICS if names.ATTR_INSTANCE in metric.attributes]
Figures = dict[tuple[str, ...], float]


class Instance:
    """One process of the service."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._port, self._metrics_port = _free_port(), _free_port()
        self.log = folder / f"{name}.log"

    def start(self) -> None:
        options = [f"--quota={project}={devices}" for project, devices in QUOTAS.items()]
        environ = os.environ | {
            "OTEL_METRICS_EXPORTER": "prometheus",
            "OTEL_EXPORTER_PROMETHEUS_HOST": "127.0.0.1",
            "OTEL_EXPORTER_PROMETHEUS_PORT": str(self._metrics_port),
            "CUDA_VISIBLE_DEVICES": "",
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(APP), f"--port={self._port}", f"--instance={self.name}", "--devices=2", *options],
                cwd=self._folder,
                env=environ,
                stdout=log,
                stderr=log,
            )
        wait_until(self._answers, JOB_S)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/runs") is not None
        except OSError:
            return False

    def get(self, path: str) -> Any:
        return self._ask(path, None)[1]

    def post(self, path: str, **body: Any) -> tuple[int, Any]:
        return self._ask(path, json.dumps(body).encode())

    def _ask(self, path: str, body: bytes | None) -> tuple[int, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", body, {"traceparent": TRACEPARENT})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def scrape(self) -> list[Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=60) as response:
            families = parser.text_string_to_metric_families(response.read().decode())
            return [sample for family in families for sample in family.samples]

    def figures(self, metric: Metric, suffix: str = "", samples: list[Any] | None = None) -> Figures:
        """By the attributes' values, the instance left out; of a scrape that is made now, unless one is given."""
        name, found = series_name(metric, "scrape") + suffix, {}
        for sample in self.scrape() if samples is None else samples:
            if sample.name == name:
                if names.ATTR_INSTANCE in metric.attributes:
                    assert sample.labels[LABEL[names.ATTR_INSTANCE]] == self.name
                others = [a for a in metric.attributes if a is not names.ATTR_INSTANCE]
                found[tuple(sample.labels.get(LABEL[attribute], "") for attribute in others)] = sample.value
        return found


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[[str], Instance]]:
    started: list[Instance] = []

    def start(name: str) -> Instance:
        started.append(Instance(name, tmp_path))
        started[-1].start()
        return started[-1]

    yield start
    for instance in started:
        if instance.process.poll() is None:
            instance.process.send_signal(signal.SIGINT)
            instance.process.wait(60)


@contextmanager
def database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "service.db", timeout=30)) as opened:
        yield opened


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with database(folder) as opened:
        return opened.execute(query).fetchall()


def spans_in(document: Any) -> list[Any]:
    scopes = [scope for resource in document["resourceSpans"] for scope in resource["scopeSpans"]]
    return [span for scope in scopes for span in scope["spans"]]


def phases(instance: Instance) -> dict[str, str]:
    return {run["id"]: run["phase"] for run in instance.get("/runs")}


def summed(instances: list[Instance], metric: Metric, suffix: str = "") -> Figures:
    """Over the instances: each counts what it did itself."""
    total: Figures = {}
    for instance in instances:
        for key, value in instance.figures(metric, suffix).items():
            total[key] = total.get(key, 0) + value
    return total


def test_two_instances_share_the_work_and_agree(tmp_path: Path, service: Callable[[str], Instance]) -> None:
    one, other = both = [service("pod-1"), service("pod-2")]
    code, first = one.post("/runs", project="triage", devices=2, steps=1)
    assert code == 201
    code, waiting = other.post("/runs", project="commits", steps=1)
    assert code == 201
    assert one.post("/runs", project="triage", devices=3)[0] == 409, "more than the quota"
    assert one.post("/runs", project="nobody")[0] == 409
    assert one.post("/runs", devices=1)[0] == 400

    # One run has the pool and the other waits: both instances say so, and the database, too
    wait_until(lambda: phases(one)[first["id"]] == "PREPARING", JOB_S)
    expected = {
        (project, state): sum(devices for p, s, devices in claims if (p, s) == (project, state))
        for claims in [rows(tmp_path, "SELECT project, claim, devices FROM runs WHERE claim IS NOT NULL")]
        for project in QUOTAS
        for state in names.ATTR_CLAIM_STATE.values
    }
    scrapes = [(instance, instance.scrape()) for instance in both]
    assert phases(one) == {first["id"]: "PREPARING", waiting["id"]: "AWAITING_DEVICES"}, "nothing happened meanwhile"
    for instance, samples in scrapes:
        figures = {metric: instance.figures(metric, samples=samples) for metric in (*CAPACITY, names.RUN_ACTIVE)}
        assert figures[names.PROJECT_DEVICES_CLAIMED] == expected
        assert figures[names.PROJECT_DEVICES_CLAIMED]["triage", "GRANTED"] == 2
        assert figures[names.POOL_CLAIMS] == {("GRANTED", "any", "false"): 1, ("QUEUED", "any", "false"): 1}
        assert figures[names.POOL_DEVICES_CLAIMED] == {("GRANTED", "any", "false"): 2, ("QUEUED", "any", "false"): 1}
        assert figures[names.POOL_DEVICES_DECLARED] == {("any", "false"): 2}
        assert figures[names.POOL_DEVICES_OBSERVED] == {("any", "false"): os.cpu_count()}
        assert figures[names.PROJECT_DEVICES_QUOTA] == {(project,): quota for project, quota in QUOTAS.items()}
        active = {key: value for key, value in figures[names.RUN_ACTIVE].items() if value}
        assert active == {("triage", "PREPARING"): 1, ("commits", "AWAITING_DEVICES"): 1}

    # The next one gets the pool, and is paused through the instance that may not be the one that follows it
    wait_until(lambda: phases(one)[waiting["id"]] == "PREPARING", JOB_S)
    assert other.post(f"/runs/{waiting['id']}/pause")[0] == 202
    assert one.post(f"/runs/{waiting['id']}/pause")[0] == 409
    wait_until(lambda: phases(one)[waiting["id"]] == "PAUSED", JOB_S)
    assert one.post(f"/runs/{waiting['id']}/cancel")[0] == 202
    _, broken = one.post("/runs", project="commits", engine="no-such-engine")
    wait_until(lambda: phases(one)[broken["id"]] == "FAILED", JOB_S)

    # All is over
    for instance in both:
        assert set(instance.figures(names.POOL_CLAIMS).values()) == {0}
        assert instance.figures(names.PROJECT_DEVICES_CLAIMED) == dict.fromkeys(expected, 0)
    ended = rows(tmp_path, "SELECT project, lower(phase), entered_s - began_s FROM runs")
    assert {(project, phase) for project, phase, _ in ended} == {
        ("triage", "completed"),
        ("commits", "cancelled"),
        ("commits", "failed"),
    }
    durations = summed(both, names.RUN_DURATION, "_sum")
    assert durations == {(project, phase): pytest.approx(lasted) for project, phase, lasted in ended}
    entered = summed(both, names.RUN_PHASE_ENTERED)
    assert entered["commits", "AWAITING_DEVICES"] == 2
    assert {phase for project, phase in entered if project == "triage"} == {
        *("AWAITING_DEVICES", "SUBMITTING", "PREPARING", "TRAINING", "REGISTERING", "COMPLETED")
    }
    left = summed(both, names.RUN_PHASE_DURATION, "_count")
    assert left == {key: count for key, count in entered.items() if key[1] not in ("COMPLETED", "FAILED", "CANCELLED")}
    assert sum(summed(both, names.RUN_FAILURES).values()) == 1
    operations = summed(both, names.SERVICE_OPERATIONS)
    assert operations == {
        ("pause", "accept", "succeeded", ""): 1,
        ("pause", "accept", "rejected", "conflict"): 1,
        ("pause", "acknowledge", "succeeded", ""): 1,
        ("pause", "release", "succeeded", ""): 1,
    }
    used = summed(both, names.GPU_TIME)
    trained = summed(both, names.RUN_PHASE_DURATION, "_sum")
    in_job = sum(trained["triage", phase] for phase in ("SUBMITTING", "PREPARING", "TRAINING", "REGISTERING"))
    assert used["triage", "true"] == pytest.approx(2 * in_job, rel=0.25), "two devices"

    # No series of the service names a run; each job's own do
    for instance in both:
        text = str([sample.labels for sample in instance.scrape()])
        assert all(run_id not in text for run_id in phases(instance))
    job = tmp_path / "jobs" / first["id"]
    sessions = [session for run in Reader([job / "metrics.jsonl"]).read() for session in run.sessions]
    assert {session.resource[names.ATTR_RUN_ID.name] for session in sessions} == {first["id"]}
    assert {session.resource[names.ATTR_PROJECT.name] for session in sessions} == {"triage"}
    spans = [span for line in (job / "traces.jsonl").read_text().splitlines() for span in spans_in(json.loads(line))]
    (of_job,) = (span for span in spans if span["name"] == names.SPAN_JOB.name)
    assert (of_job["traceId"], of_job["parentSpanId"]) == (TRACE_ID, SPAN_ID), "part of the trace that asked for it"

    for instance in both:
        instance.process.send_signal(signal.SIGINT)
        assert instance.process.wait(60) in (0, -signal.SIGINT)
        assert "Traceback" not in instance.log.read_text()


def test_an_instance_that_ends_takes_its_jobs_along_and_fails_what_it_lost(
    tmp_path: Path, service: Callable[[str], Instance]
) -> None:
    one = service("pod-1")
    _, run = one.post("/runs", project="triage", steps=1)
    wait_until(lambda: phases(one)[run["id"]] == "PREPARING", JOB_S)
    one.process.send_signal(signal.SIGINT)
    one.process.wait(60)
    assert rows(tmp_path, "SELECT phase, before_cleaning, claim FROM runs") == [("FAILED", "PREPARING", None)]

    with database(tmp_path) as opened, opened:
        opened.execute("UPDATE runs SET phase = 'TRAINING', claim = 'GRANTED', before_cleaning = NULL")  # a kill -9
    again = service("pod-1")
    wait_until(lambda: phases(again)[run["id"]] == "FAILED")
    assert again.figures(names.RUN_FAILURES) == {("triage", "TRAINING"): 1}


def test_a_pipeline_and_its_stages(tmp_path: Path, service: Callable[[str], Instance]) -> None:
    one = service("pod-1")
    assert one.post("/pipelines", project="triage")[0] == 201
    assert one.figures(names.PIPELINE_ACTIVE) == {("triage",): 1}
    wait_until(lambda: rows(tmp_path, "SELECT * FROM pipelines") == [], JOB_S)
    assert one.figures(names.PIPELINE_ACTIVE) == {("triage",): 0}
    stages = one.figures(names.PIPELINE_STAGE_DURATION, "_count")
    assert stages == {("triage", "train", "completed"): 1, ("triage", "evaluate", "completed"): 1}
