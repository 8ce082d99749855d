"""The whole source in a process of its own: the real nvidia-ml-py finds the fake driver as it finds NVIDIA's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.nvml import Code
from akka_otel_callbacks.common.threads import ExportLoop
from akka_otel_callbacks.common.vocabulary import names
from tests.fake_nvml import FakeDriver

SRC = str(Path(__file__).parents[3] / "src")
FAST, SLOW = "GPU-36e1567d-37ed-051e-f8ff-df807517b396", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"

PREAMBLE = """
import json, sys, threading, time
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.placement import Placement

def wait_for(condition, timeout_s=10):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)

def shown():
    return {metric.name: health.points(metric) for metric in health.metrics}
"""


class Child:
    """A program that watches GPUs; its lines of JSON are what it saw."""

    def __init__(self, script: str, driver: FakeDriver | None, **environ: str) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "FAKE_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
            env={**inherited, **(driver.environment if driver else {}), "PYTHONPATH": SRC, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, list]:
        text = self.process.stdout.readline()
        assert text, self.process.stderr.read()
        return json.loads(text)

    def end(self, timeout_s: float = 20) -> str:
        """Its log, after it ended well."""
        _, log = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, log
        return log


def test_a_job_on_one_gpu_of_two(other_driver: FakeDriver) -> None:
    other = other_driver.gpu(SLOW, "NVIDIA T4")
    other_driver.gpu(FAST)
    child = Child(
        """
        health = GpuHealth(interval_s=0.05)
        placement = Placement(health.devices, where={})
        health.start()
        wait_for(placement.points)
        wait_for(lambda: shown()["hw.power"])
        wait_for(lambda: shown()["akka.optimize.training.gpu.xid.errors"])
        print(json.dumps({**shown(), "placement": placement.points()}), flush=True)
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    seen = child.line()
    child.end()
    identity = {"hw.id": FAST, "hw.name": "NVIDIA H100 80GB HBM3"}
    assert seen["hw.power"] == [[250.0, {**identity, "hw.type": "gpu"}]]
    assert seen[names.GPU_XID_ERRORS.name] == [[0, identity]]
    assert seen[names.GPU_XID_CAUSES.name] == [
        [0, {**identity, names.ATTR_GPU_XID_CAUSE.name: cause}] for cause in names.ATTR_GPU_XID_CAUSE.values
    ]
    assert seen["placement"] == [[1, {names.ATTR_JOB_RANK.name: 0, names.ATTR_JOB_ROLE.name: "trainer", **identity}]]
    assert other_driver.called(other) == set(), "the other job's GPU is left alone"


def test_a_lost_gpu_and_then_the_end_of_the_job(other_driver: FakeDriver) -> None:
    gpu = other_driver.gpu(FAST)
    child = Child(
        """
        health = GpuHealth(interval_s=0.05)
        health.start()
        wait_for(lambda: shown()["hw.power"])
        print(json.dumps(shown()), flush=True)
        wait_for(lambda: shown()["akka.optimize.training.gpu.xid.last"] and not shown()["hw.power"])
        print(json.dumps(shown()), flush=True)
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    assert child.line()["hw.power"]
    other_driver.xid(gpu, 79)
    time.sleep(0.3)
    other_driver.lose(gpu)
    seen = child.line()
    began = time.monotonic()
    log = child.end()
    assert time.monotonic() - began < 2.5
    assert [value for value, _ in seen[names.GPU_XID_LAST.name]] == [79]
    assert log.count("has fallen off the bus; usually the hardware") == 1
    assert log.count("GPU is lost") == 1


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlEventSetWait_v2"])
@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 15)"])
def test_a_hanging_driver_does_not_hold_the_process(other_driver: FakeDriver, function: str, ending: str) -> None:
    other_driver.gpu(FAST)
    other_driver.hang(function)
    child = Child(
        f"""
        health = GpuHealth(interval_s=0.05)
        health.start()
        time.sleep(0.3)
        print(json.dumps(shown()), flush=True)
        health.stop()
        {ending}
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    seen = child.line()
    began = time.monotonic()
    child.process.communicate(timeout=10)
    assert time.monotonic() - began < 2.5
    assert child.process.returncode in (0, -15)
    expected = function == "nvmlEventSetWait_v2"  # a hanging watcher does not hold the sampler
    assert bool(seen["hw.power"]) is expected


def test_a_program_that_forgets_to_stop_ends_all_the_same(other_driver: FakeDriver) -> None:
    other_driver.gpu(FAST)
    other_driver.hang("nvmlDeviceGetPowerUsage")
    child = Child("health = GpuHealth(); health.start(); time.sleep(0.2)", other_driver, CUDA_VISIBLE_DEVICES=FAST)
    began = time.monotonic()
    child.end(timeout_s=10)
    assert time.monotonic() - began < 8  # the start of Python included


def test_one_line_where_there_is_no_driver(tmp_path: Path) -> None:
    script = """
        import logging
        logging.basicConfig(level=logging.DEBUG, format="%(message)s")
        health = GpuHealth(["GPU-1"], interval_s=0.02)
        placement = Placement(health.devices, where={})
        health.start()
        wait_for(placement.points)
        time.sleep(0.2)
        print(json.dumps({**shown(), "placement": placement.points()}), flush=True)
        health.stop()
        """
    child = Child(script, None, LD_LIBRARY_PATH=str(tmp_path))
    seen = child.line()
    lines = child.end().splitlines()
    if seen["hw.power"]:
        pytest.skip("this machine has NVIDIA's driver")
    assert seen.pop("placement") == [[1, {names.ATTR_JOB_RANK.name: 0, names.ATTR_JOB_ROLE.name: "trainer"}]]
    assert not any(seen.values())
    assert len(lines) == 1, lines
    assert "NVIDIA's driver (libnvidia-ml.so.1) is not found" in lines[0]


def test_a_driver_without_permission_costs_one_line(other_driver: FakeDriver) -> None:
    gpu = other_driver.gpu(FAST)
    for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"):
        other_driver.fail(function, Code.NO_PERMISSION, gpu)
    child = Child(
        """
        import logging
        logging.basicConfig(level=logging.WARNING, format="%(message)s")
        health = GpuHealth(interval_s=0.02)
        health.start()
        wait_for(lambda: shown()["hw.temperature"])
        time.sleep(0.2)
        print(json.dumps(shown()), flush=True)
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    seen = child.line()
    assert seen["hw.power"] == seen["hw.gpu.memory.usage"] == []
    assert child.end().count("\n") == 1


def test_importing_and_starting_import_no_torch(other_driver: FakeDriver) -> None:
    other_driver.gpu(FAST)
    child = Child(
        """
        health = GpuHealth(interval_s=0.05)
        health.start()
        wait_for(lambda: shown()["hw.power"])
        print(json.dumps(sorted({"torch", "transformers", "trl"} & sys.modules.keys())), flush=True)
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    assert child.line() == []
    child.end()


def test_a_job_that_holds_no_device_starts_no_thread(other_driver: FakeDriver) -> None:
    other_driver.gpu(FAST)
    child = Child(
        """
        health = GpuHealth([])
        health.start()
        print(json.dumps([threading.active_count(), Placement(health.devices, where={}).points()]), flush=True)
        health.stop()
        """,
        other_driver,
    )
    assert child.line() == [1, []]
    child.end()
    assert other_driver.state.call_count == 0, "not even NVML was started"


def test_every_metric_of_the_registrys_gpu_part_is_offered() -> None:
    of_gpus = {metric for metric in names.JOB_METRICS if names.ATTR_HW_ID in metric.attributes}
    assert set(GpuHealth.metrics) == of_gpus - {names.JOB_PLACEMENT}
    assert len(GpuHealth.metrics) == len(set(GpuHealth.metrics))


class Exporter:
    """A reader of which only the collection matters."""

    def __init__(self, health: GpuHealth) -> None:
        self.health = health
        self.watts: list[float] = []
        self.loop = ExportLoop(self.collect, self.shutdown, interval_s=3600, pause_s=None)
        self.loop.start()

    def collect(self) -> bool:
        self.watts += [value for value, _ in self.health.points(names.HW_POWER)]
        return True

    def shutdown(self) -> None: ...


def test_each_of_two_exporters_means_the_samples_since_its_own_export() -> None:
    gpu = FakeGpu()
    backend = FakeNvml(gpu)
    health = GpuHealth(backend.device_ids, backend=backend)
    often, seldom = Exporter(health), Exporter(health)
    for watts in (100, 200, 300):
        gpu.power_mw = watts * 1000
        health._sampler.sample()
        assert often.loop.flush(10)
    assert seldom.loop.flush(10)
    assert (often.watts, seldom.watts) == ([100, 200, 300], [200])
    for exporter in (often, seldom):
        exporter.loop.stop()
        exporter.loop.join(10)
