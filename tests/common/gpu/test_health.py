"""The whole source in a process of its own: the real nvidia-ml-py finds the fake driver as it finds NVIDIA's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.nvml import Code
from akka_otel_callbacks.common.threads import ExportLoop
from akka_otel_callbacks.common.vocabulary import names
from tests.fake_nvml import FakeDriver
from tests.support.otlp_sink import wait_until

SRC = str(Path(__file__).parents[3] / "src")
FAST, SLOW = "GPU-36e1567d-37ed-051e-f8ff-df807517b396", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"

PREAMBLE = """
import json, logging, sys, threading, time
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.placement import Placement
from akka_otel_callbacks.common.log import logger

said = []
logger.addHandler(logging.Handler())
logger.handlers[-1].emit = lambda record: said.append(record.getMessage())

def wait_for(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found

def shown():
    return {metric.name: health.points(metric) for metric in health.metrics}

def shown_with(*names):
    # All at once: on a busy machine a figure is stale soon after it was there, until it is sampled again.
    def all_of_them():
        now = shown()
        return now if all(now[name] for name in names) else None

    return wait_for(all_of_them)

def tell(**more):
    print(json.dumps({**more, "said": said}), flush=True)
"""


class Child:
    """A program that watches GPUs; its lines of JSON are what it saw. Where it asks for `input()`, `go_on` lets it."""

    def __init__(self, script: str, driver: FakeDriver | None, **environ: str) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "FAKE_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)],
            env={**inherited, **(driver.environment if driver else {}), "PYTHONPATH": SRC, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict[str, list]:
        text = self.process.stdout.readline()
        assert text, self.process.stderr.read()
        return json.loads(text)

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """What it wrote to stderr, after it ended well."""
        _, log = self.process.communicate(timeout=60)
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
        tell(**shown_with("hw.power", "akka.optimize.training.gpu.xid.errors"), placement=placement.points())
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
        tell(**shown_with("hw.power"))
        tell(**shown_with("akka.optimize.training.gpu.xid.last"))
        wait_for(lambda: any("GPU is lost" in line for line in said))
        wait_for(lambda: not shown()["hw.power"])
        tell(**shown())
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    assert child.line()["hw.power"]
    other_driver.xid(gpu, 79)
    assert [value for value, _ in child.line()[names.GPU_XID_LAST.name]] == [79]
    other_driver.lose(gpu)
    seen = child.line()
    child.end()
    assert [value for value, _ in seen[names.GPU_XID_LAST.name]] == [79]
    log = "\n".join(seen["said"])
    assert log.count("has fallen off the bus; usually the hardware") == 1
    assert log.count("GPU is lost") == 1


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlEventSetWait_v2"])
@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 15)"])
def test_a_hanging_driver_does_not_hold_the_process(other_driver: FakeDriver, function: str, ending: str) -> None:
    other_driver.gpu(FAST)
    other_driver.hang(function)
    samples = function == "nvmlEventSetWait_v2"  # a hanging watcher does not hold the sampler
    child = Child(
        f"""
        health = GpuHealth(interval_s=0.05)
        health.start()
        input()
        tell(**shown_with({'"hw.power"' if samples else ""}))
        health.stop()
        {ending}
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    wait_until(lambda: other_driver.state.hangs)
    child.go_on()
    assert bool(child.line()["hw.power"]) is samples
    child.process.communicate(timeout=60)
    assert child.process.returncode in (0, -15)


def test_a_program_that_forgets_to_stop_ends_all_the_same(other_driver: FakeDriver) -> None:
    other_driver.gpu(FAST)
    other_driver.hang("nvmlDeviceGetPowerUsage")
    child = Child("health = GpuHealth(); health.start(); input()", other_driver, CUDA_VISIBLE_DEVICES=FAST)
    wait_until(lambda: other_driver.state.hangs)
    child.go_on()
    child.end()


def test_one_line_where_there_is_no_driver(tmp_path: Path) -> None:
    script = """
        logger.setLevel(logging.DEBUG)
        health = GpuHealth(["GPU-1"], interval_s=0.02)
        samples, refresh = [], health.devices.refresh
        health.devices.refresh = lambda: [samples.append(1), refresh()]
        placement = Placement(health.devices, where={})
        health.start()
        wait_for(placement.points)
        wait_for(lambda: len(samples) > 5)
        tell(**shown(), placement=placement.points())
        health.stop()
        """
    child = Child(script, None, LD_LIBRARY_PATH=str(tmp_path))
    seen = child.line()
    child.end()
    lines = seen.pop("said")
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
        health = GpuHealth(interval_s=0.02)
        health.start()
        input()
        tell(**shown_with("hw.temperature"))
        health.stop()
        """,
        other_driver,
        CUDA_VISIBLE_DEVICES=FAST,
    )
    wait_until(lambda: other_driver.calls("nvmlDeviceGetTemperature", gpu) > 5)
    child.go_on()
    seen = child.line()
    child.end()
    assert seen["hw.power"] == seen["hw.gpu.memory.usage"] == []
    lines = [line for line in seen["said"] if "has not answered" not in line]  # which is true of a busy machine
    assert len(lines) == 1, seen["said"]


def test_importing_and_starting_import_no_torch(other_driver: FakeDriver) -> None:
    other_driver.gpu(FAST)
    child = Child(
        """
        health = GpuHealth(interval_s=0.05)
        health.start()
        shown_with("hw.power")
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
