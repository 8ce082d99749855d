"""Worker processes of verl on Ray, without a training: what they say of themselves, and what is left of one that is
killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from prometheus_client.parser import text_string_to_metric_families
from verl_cpu.train import ENVIRONMENT

from akka_otel_callbacks.common.export.address_files import PID, look
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from tests.fake_nvml import FakeDriver, build
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until
from tests.support.points import Point
from tools.prometheus import label_name, series_name

UUIDS = ("GPU-11111111-aaaa-bbbb-cccc-000000000000", "GPU-22222222-aaaa-bbbb-cccc-000000000000")
TRACEPARENT = f"00-{'1' * 32}-{'2' * 16}-01"
INTERVAL_S = 1.0
START_TIMEOUT_S = 240.0


class Job:
    """The program `worker_job` with two workers."""

    def __init__(self, process: subprocess.Popen[str], sink: OtlpSink) -> None:
        self._process, self._sink = process, sink
        told = json.loads(self._line("{"))
        self.pids: list[int] = told["pids"]
        self.environments: list[dict[str, str]] = told["environments"]

    def flush(self) -> None:
        self._process.stdin.write("flush\n")
        self._process.stdin.flush()
        self._line("flushed")

    def placements(self, rank: int) -> list[Point]:
        return self._sink.series(names.JOB_PLACEMENT, {names.ATTR_JOB_RANK: rank})

    def points(self, metric: Metric, rank: int) -> list[Point]:
        """A worker's points of any metric."""
        pid = names.ATTR_PROCESS_PID.name
        return [point for point in self._sink.series(metric) if point.resource[pid] == self.pids[rank]]

    def _line(self, start: str) -> str:
        for line in self._process.stdout:
            if line.startswith(start):
                return line
        raise AssertionError(f"the job ended with status {self._process.wait()}")


@contextmanager
def worker_job(*arguments: str, **environ: str) -> Iterator[Job]:
    with otlp_sink() as sink, tempfile.TemporaryDirectory() as ray_directory:
        environ = {
            **os.environ,
            **ENVIRONMENT,
            "RAY_TMPDIR": ray_directory,
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
            "OTEL_METRIC_EXPORT_INTERVAL": str(round(INTERVAL_S * 1000)),
            **environ,
        }
        command = [sys.executable, "-m", "tests.verl.e2e.worker_job", *arguments]
        pipe: Any = subprocess.PIPE
        with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe, text=True) as process:
            try:
                yield Job(process, sink)
            finally:
                process.stdin.close()
                try:
                    process.wait(20)
                finally:
                    process.kill()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A machine with two GPUs, as far as NVML can tell."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler to build the fake libnvidia-ml.so.1 with")
    directory = tmp_path_factory.mktemp("nvml")
    driver = FakeDriver(build(directory), directory / "state")
    driver.gpu(UUIDS[0], power_mw=100_000)
    driver.gpu(UUIDS[1], power_mw=200_000)
    return driver


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the addresses of the job's processes stand."""
    return tmp_path_factory.mktemp("addresses")


@pytest.fixture(scope="module")
def job(driver: FakeDriver, folder: Path) -> Iterator[Job]:
    environ = {"POD_NAME": "pod-1", "NODE_NAME": "node-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environ |= {"OTEL_METRICS_EXPORTER": "otlp,prometheus", "AKKA_OTEL_DIR": str(folder), **driver.environment}
    with worker_job("akka_otel", TRACEPARENT=TRACEPARENT, **environ) as job:
        yield job


def test_a_worker_names_its_roles_rank_pod_node_and_gpu(job: Job) -> None:
    for rank in (0, 1):
        point = wait_until(lambda rank=rank: job.placements(rank), START_TIMEOUT_S)[-1]
        assert point.value == 1
        assert point.attributes == {
            names.ATTR_JOB_RANK.name: rank,
            names.ATTR_JOB_ROLE.name: "actor_rollout+critic",
            names.ATTR_K8S_POD_NAME.name: "pod-1",
            names.ATTR_K8S_NODE_NAME.name: "node-1",
            names.ATTR_HOST_NAME.name: point.resource[names.ATTR_HOST_NAME.name],
            names.ATTR_HW_ID.name: UUIDS[rank],
            names.ATTR_HW_NAME.name: "NVIDIA H100 80GB HBM3",
        }
        assert point.resource[names.ATTR_PROCESS_PID.name] == job.pids[rank]


def test_a_worker_reads_the_gpu_that_it_holds_and_no_other(job: Job) -> None:
    for rank, watts in ((0, 100), (1, 200)):
        power = wait_until(lambda rank=rank: job.points(names.HW_POWER, rank), START_TIMEOUT_S)
        assert {(point.value, point.attributes[names.ATTR_HW_ID.name]) for point in power} == {(watts, UUIDS[rank])}


def test_the_trace_and_the_settings_of_the_exporter_reach_a_worker(job: Job) -> None:
    for environment in job.environments:
        version, trace_id, span_id, flags = environment["TRACEPARENT"].split("-")
        assert [version, trace_id, flags] == [*TRACEPARENT.split("-")[:2], "01"]
        assert span_id != TRACEPARENT.split("-")[2], "it is the job's own span"
        assert environment["OTEL_METRIC_EXPORT_INTERVAL"] == "1000"


def test_a_prometheus_finds_each_worker_until_the_run_ends(job: Job, folder: Path) -> None:
    found = wait_until(lambda: len(look(folder)) == 2 and look(folder), START_TIMEOUT_S)
    assert {int(each.labels[PID]) for each in found} == {*job.pids}
    ranks = {}
    for each in found:
        with urllib.request.urlopen(f"http://{each.address}/metrics", timeout=10) as response:
            families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
        (placement,) = [s for s in samples if s.name == series_name(names.JOB_PLACEMENT, "scrape")]
        run = placement.labels[label_name(names.ATTR_RUN_ID.name, "scrape")]
        ranks[placement.labels[label_name(names.ATTR_JOB_RANK.name, "scrape")]] = each.address
        assert each.labels["instance"].startswith(f"{run}.1.")
    assert {*ranks} == {"0", "1"}
    assert not any(address.endswith(":9464") for address in ranks.values()), "that is the trainer's"
    job.flush()
    assert look(folder) == []


def test_a_flush_exports_at_once(job: Job) -> None:
    before = [len(job.placements(rank)) for rank in (0, 1)]
    started = time.monotonic()
    job.flush()
    assert time.monotonic() - started < 5
    assert all(len(job.placements(rank)) > before[rank] for rank in (0, 1))


def test_a_killed_worker_ends_its_series_within_two_intervals(job: Job) -> None:
    os.kill(job.pids[0], signal.SIGKILL)
    killed_ns = time.time_ns()
    other = len(job.placements(1))
    wait_until(lambda: len(job.placements(1)) >= other + 4, START_TIMEOUT_S)
    assert max(point.time_ns for point in job.placements(0)) <= killed_ns + 2 * INTERVAL_S * 1e9


def test_without_the_logger_nothing_is_exported_or_handed_on() -> None:
    with worker_job("console") as job:
        time.sleep(3 * INTERVAL_S)
        assert job.placements(0) == job.placements(1) == []
        assert all("AKKA_OTEL_RUN" not in environment for environment in job.environments)


def test_the_setup_hook_stands_in_for_the_entry_point() -> None:
    run = f"{names.ATTR_RUN_ID.name}=hooked"
    with worker_job("akka_otel", "hook", AKKA_OTEL_RUN=run, VERL_USE_EXTERNAL_PLUGINS="verl_cpu") as job:
        (point, *_) = wait_until(lambda: job.placements(0), START_TIMEOUT_S)
        assert point.resource[names.ATTR_RUN_ID.name] == "hooked"
