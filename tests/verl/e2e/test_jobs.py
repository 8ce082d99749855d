"""Who a run is, and what reaches its processes, however Ray was started: verl's own `run_ppo` with a trainer and a
worker that train nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from verl_cpu.train import ENVIRONMENT

from akka_otel_callbacks.common import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Point

RUN_ID, ATTEMPT, SERVICE = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name, names.ATTR_SERVICE_NAME.name
CLUSTER, POD = "k8s.cluster.name", names.ATTR_K8S_POD_NAME.name
RATE = names.ATTR_RUN_LEARNING_RATE.name


class Job:
    """The program `driver_job`, which has ended."""

    def __init__(self, output: str, sink: OtlpSink) -> None:
        self.output, self.sink = output, sink
        self.environments: list[dict[str, str]] = [
            environment
            for line in output.splitlines()
            if "told " in line
            for environment in json.loads(line.partition("told ")[2])
        ]

    def runs(self) -> dict[tuple[str, int], dict[str, list[Point]]]:
        """By run and attempt, the points of its trainer and those of its worker."""
        found: dict[tuple[str, int], dict[str, list[Point]]] = {}
        for point in self.sink.metrics():
            key = point.resource[RUN_ID], int(point.resource[ATTEMPT])
            who = "worker" if point.name == names.JOB_PLACEMENT.name else "trainer"
            if point.name in (names.JOB_PLACEMENT.name, names.RL_STEP_REWARD.name):
                found.setdefault(key, {}).setdefault(who, []).append(point)
        return found


def driver_job(*arguments: str, given: dict[str, str], **environ: str) -> Iterator[Job]:
    with otlp_sink() as sink, tempfile.TemporaryDirectory() as ray_directory:
        environ = {
            **os.environ,
            **ENVIRONMENT,
            "RAY_TMPDIR": ray_directory,
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
            "AKKA_FOREIGN_SECRET": "hunter2",
            "POD_NAME": "pod-1",
            "VARIABLES": json.dumps(given),
            **environ,
        }
        command = [sys.executable, "-m", "tests.verl.e2e.driver_job", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=180)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output[-4000:]
        assert "telemetry failed" not in output, output[-4000:]
        yield Job(output, sink)


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    """Two trainings in a Ray that the user's program started; the second is of a run that the user names by then."""
    given = {"OTEL_SERVICE_NAME": "theirs"}
    yield from driver_job("0.001", "0.002@mine", given=given, OTEL_RESOURCE_ATTRIBUTES=f"team=red,{CLUSTER}=c")


def test_each_training_of_a_sweep_is_a_run_with_its_own_settings(job: Job) -> None:
    by_rate = {}
    for run, points in job.runs().items():
        (rate,) = {point.resource[RATE] for who in ("trainer", "worker") for point in points[who]}
        assert points["trainer"][-1].value == pytest.approx(rate * 100)
        by_rate[rate] = run
    assert by_rate.pop(0.001)[0].startswith("verl-")
    assert by_rate == {0.002: ("mine", 1)}


def test_the_workers_of_a_ray_that_the_user_started_are_of_the_run(job: Job) -> None:
    for points in job.runs().values():
        assert {point.attributes[names.ATTR_JOB_ROLE.name] for point in points["worker"]} == {"Actor"}
        for point in [*points["worker"], *points["trainer"]]:
            assert (point.resource["team"], point.resource[CLUSTER]) == ("red", "c")
            assert (point.resource[SERVICE], point.resource[POD]) == ("theirs", "pod-1")


def test_no_foreign_secret_is_handed_on(job: Job) -> None:
    assert len(job.environments) == 2
    for environment in job.environments:
        assert "hunter2" not in environment["AKKA_OTEL_RUN"]
