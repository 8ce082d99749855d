"""What a training says of its accelerators; scripted GPUs and a scripted allocator stand in for the missing ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.memory.account import MemoryAccount
from akka_otel_callbacks.common.memory.allocator import Usage
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import MemoryComponent as Part
from akka_otel_callbacks.trl import AkkaTelemetryCallback, accelerators, loop
from akka_otel_callbacks.trl.accelerators import device_count, device_ids
from tests.support.otlp_sink import otlp_sink
from tests.support.points import Point
from tests.trl.runs import Run, exported_run
from tests.trl.trainings import online, sft

FIRST = FakeGpu(uuid="GPU-11111111-0000-0000-0000-000000000001", name="NVIDIA H100 80GB HBM3", power_mw=300_000)
SECOND = FakeGpu(uuid="GPU-22222222-0000-0000-0000-000000000002", name="NVIDIA H100 80GB HBM3", power_mw=500_000)


def points(run: Run, metric: Any) -> list[Point]:
    return [point for point in run.points() if point.name == metric.name]


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the sampler never came to it"
        time.sleep(0.02)


def test_every_gpu_of_the_process_has_its_place_and_its_health(tiny_model: str) -> None:
    nvml = FakeNvml(FIRST, SECOND)
    gpus = GpuHealth(nvml.device_ids, backend=nvml, interval_s=0.05)
    gpus.start()
    wait_for(lambda: len(gpus.points(names.HW_TEMPERATURE)) >= 2)
    wait_for(lambda: gpus.points(names.GPU_XID_ERRORS))
    nvml.xid(31, SECOND)
    wait_for(lambda: gpus.points(names.GPU_XID_LAST))
    try:
        run = exported_run(
            lambda callbacks: sft(tiny_model, callbacks, max_steps=2),
            callback=AkkaTelemetryCallback(gpus=gpus),
            variables={"POD_NAME": "trainer-0", "NODE_NAME": "node-7"},
        )
    finally:
        gpus.stop()
    placed = {point.attributes[names.ATTR_HW_ID.name]: point for point in points(run, names.JOB_PLACEMENT)}
    assert set(placed) == {FIRST.uuid, SECOND.uuid}
    assert [placed[gpu.uuid].attributes[names.ATTR_JOB_RANK.name] for gpu in (FIRST, SECOND)] == [0, 1]
    for point in placed.values():
        assert point.value == 1
        assert point.attributes[names.ATTR_JOB_ROLE.name] == "trainer"
        assert point.attributes[names.ATTR_K8S_POD_NAME.name] == "trainer-0"
        assert point.attributes[names.ATTR_K8S_NODE_NAME.name] == "node-7"
        assert point.resource[names.ATTR_RUN_ID.name]
    power = {point.attributes[names.ATTR_HW_ID.name]: point.value for point in points(run, names.HW_POWER)}
    assert power == {FIRST.uuid: 300.0, SECOND.uuid: 500.0}
    errors = {point.attributes[names.ATTR_HW_ID.name]: point.value for point in points(run, names.GPU_XID_ERRORS)}
    assert errors == {FIRST.uuid: 0, SECOND.uuid: 1}
    (last,) = points(run, names.GPU_XID_LAST)
    assert (last.value, last.attributes[names.ATTR_HW_ID.name]) == (31, SECOND.uuid)


def test_a_cpu_training_claims_no_accelerator(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=1))
    told = {point.name for point in run.points()}
    silent = (names.JOB_PLACEMENT, names.JOB_DEVICES, names.HW_POWER, names.STEP_MEMORY)
    assert not told & {metric.name for metric in silent}
    assert names.SFT_STEP_MEMORY_MAX_ALLOCATED.name not in told


@pytest.mark.parametrize(
    ("device", "n_gpu", "spread", "held"),
    [
        pytest.param("cpu", 0, None, [], id="no accelerator"),
        pytest.param("cuda", 1, None, [0], id="one"),
        pytest.param("cuda:3", 1, None, [3], id="one of many, as under torchrun"),
        pytest.param("cuda", 4, None, [0, 1, 2, 3], id="data parallel in one process"),
        pytest.param("cuda", 1, {"": 0}, [0], id="placed on one"),
        pytest.param("cuda", 1, {"a": 0, "b": 2, "c": 1, "d": 0}, [0, 1, 2], id="spread over several"),
        pytest.param("cuda", 1, {"a": 1, "b": "cpu"}, [1], id="partly on the host"),
    ],
)
def test_the_devices_that_a_process_holds(device: str, n_gpu: int, spread: Any, held: list[int]) -> None:
    args: Any = SimpleNamespace(device=torch.device(device), n_gpu=n_gpu, world_size=2)
    trainer: Any = SimpleNamespace(model=SimpleNamespace(hf_device_map=spread))
    assert device_ids(trainer, args) == held
    assert device_count(trainer, args) == 2 * max(1, len(held))


class ScriptedDevice:
    """A device that holds `base` bytes between the phases of a step, and more at the peak of each."""

    device = torch.device("cpu")
    total, outside = 1 << 30, 5 << 20

    def __init__(self, base: int, generation: int, update: int) -> None:
        self.base, self.extra = base, {True: generation, False: update}
        self.generating = False
        self.peak = base

    def usage(self) -> Usage:
        self.peak = max(self.peak, self.base + self.extra[self.generating])
        return Usage(self.base, self.peak, self.peak + 1000, self.peak + 1000)

    def reset_peak(self) -> None:
        self.peak = self.base

    def driver(self) -> tuple[int, int]:
        return self.total - self.outside - self.usage().reserved, self.total


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedDevice], None]:
    def use(device: ScriptedDevice) -> None:
        account = MemoryAccount([device], parts=True)
        begin, end = account.begin_generation, account.end_generation

        def begins() -> None:
            begin()
            device.generating = True

        def ends() -> None:
            end()
            device.generating = False

        monkeypatch.setattr(account, "begin_generation", begins)
        monkeypatch.setattr(account, "end_generation", ends)
        monkeypatch.setattr(loop, "memory_account", lambda trainer, args: account)

    return use


def parts(run: Run, step: int) -> dict[str, float]:
    return run.figures(step)[names.STEP_MEMORY.name]


def weight_bytes(run: Run) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in run.trainer.model.parameters())


def buffer_bytes(run: Run) -> int:
    return sum(buffer.numel() * buffer.element_size() for buffer in run.trainer.model.buffers())


@pytest.mark.parametrize(
    ("generation", "update", "where"),
    [
        pytest.param(3_000_000, 1_000_000, Part.GENERATION, id="peak while generating"),
        pytest.param(1_000_000, 3_000_000, Part.ACTIVATIONS, id="peak while updating"),
    ],
)
def test_the_parts_of_a_reinforcement_step(
    tiny_model: str, on_device: Any, generation: int, update: int, where: str
) -> None:
    device = ScriptedDevice(40_000_000, generation, update)
    on_device(device)
    run = exported_run(lambda callbacks: online("GRPO", tiny_model, callbacks, max_steps=2), keep_trainer=True)
    for step in run.steps:
        found = parts(run, step)
        assert sum(found.values()) == device.total
        assert min(found.values()) >= 0
        assert found[Part.WEIGHTS] == weight_bytes(run) + buffer_bytes(run)
        assert found[Part.EXTERNAL] == device.outside
        idle = {Part.GENERATION: Part.ACTIVATIONS, Part.ACTIVATIONS: Part.GENERATION}[where]
        assert found[where] > 0
        assert found[idle] == 0
        top = device.base + max(generation, update)
        assert run.shown(names.RL_STEP_MEMORY_MAX_ALLOCATED, step) == top
        assert run.shown(names.RL_STEP_MEMORY_MAX_RESERVED, step) == top + 1000


def test_the_parts_of_a_supervised_step(tiny_model: str, on_device: Any) -> None:
    device = ScriptedDevice(40_000_000, 0, 2_000_000)
    on_device(device)
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=2), keep_trainer=True)
    first, second = (parts(run, step) for step in (1, 2))
    assert sum(first.values()) == sum(second.values()) == device.total
    assert first[Part.OPTIMIZER] == 0  # Adam makes its state in the first step
    assert second[Part.OPTIMIZER] >= 2 * weight_bytes(run)
    assert second[Part.GRADIENTS] == weight_bytes(run)
    assert second[Part.ACTIVATIONS] == 2_000_000 - second[Part.GRADIENTS]


# -- the other ranks


@pytest.mark.parametrize(("environ", "port"), [({"LOCAL_RANK": "1"}, "0"), ({"LOCAL_RANK": "0"}, "9000"), ({}, "0")])
def test_a_scraped_rank_leaves_the_training_its_port(environ: dict[str, str], port: str) -> None:
    """The first rank of a further node has no training beside it."""
    asked = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "9000", **environ}
    assert accelerators._exporting(asked) == {**asked, "OTEL_EXPORTER_PROMETHEUS_PORT": port}


def test_a_rank_publishes_its_gpus_as_the_attempt_that_the_first_rank_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    store: dict[str, Attempt] = {}
    traces: dict[str, Any] = {}

    def share(attempt: Attempt, key: str, trace: Any) -> None:
        store[key], traces[key] = attempt, trace

    monkeypatch.setattr(accelerators, "share", share)
    monkeypatch.setattr(accelerators, "shared", store.get)
    monkeypatch.setattr(accelerators, "shared_trace", traces.get)
    for training, number in enumerate((3, 4)):
        trace = {"TRACEPARENT": f"00-{'a' * 32}-{str(number) * 16}-01"}
        accelerators.tell_companions(Attempt("run", number), training, trace)
    wait_for(lambda: len(store) == 2)
    nvml, identities = FakeNvml(FIRST), []

    def identity(attempt: Attempt) -> Any:
        identities.append(attempt)
        said = {names.ATTR_RUN_ID.name: attempt.run_id, names.ATTR_RUN_ATTEMPT.name: attempt.number}
        return identify({}, engine={}, arguments=said, rank=1)

    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        for training, attempt in enumerate((3, 4)):
            gpus = GpuHealth(nvml.device_ids, backend=nvml, interval_s=0.02)
            companion = accelerators.companion(identity, gpus, 1, training)
            wait_for(lambda at=companion: at.telemetry)
            assert companion.telemetry is not None
            assert companion.telemetry.trace.variables()["TRACEPARENT"].split("-")[2] == str(attempt) * 16
            companion.close()
            assert identities.pop() == Attempt("run", attempt)
        placed = sink.series(names.JOB_PLACEMENT)
    assert {point.resource[names.ATTR_SERVICE_INSTANCE_ID.name] for point in placed} <= {"run.3.1", "run.4.1"}
    silent = accelerators.companion(lambda attempt: pytest.fail("nobody told it"), GpuHealth([]), 1, 7)
    silent.close()
