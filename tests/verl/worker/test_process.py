"""What one worker process does by itself; `e2e/` has those that Ray runs."""

from __future__ import annotations

import os
import sys
import time
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from akka_otel_callbacks.common.run import handed_on
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl import environment, run
from akka_otel_callbacks.verl.state import STATE
from akka_otel_callbacks.verl.worker import companion, process, setup_hook
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until


class Worker:
    """As much of verl's as the hooks touch."""

    def __init__(self) -> None:
        self.fused_worker_dict: dict[str, Any] = {}


def named(name: str, **attributes: Any) -> Any:
    made = type(name, (Worker,), {})()
    made.__dict__.update(attributes)
    return made


@pytest.fixture
def verl_worker() -> ModuleType:
    """verl's module with a class of its own, hooked, in a process that has no worker yet."""
    module: Any = ModuleType("verl.single_controller.base.worker")
    module.Worker = type("Worker", (Worker,), {})
    process.install(module)
    return module


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Any:
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
        monkeypatch.setenv("RANK", "3")
        monkeypatch.setenv("WG_PREFIX", "group")
        monkeypatch.setenv(handed_on.RUN_VARIABLE, f"{names.ATTR_RUN_ID.name}=run-7,{names.ATTR_RUN_ATTEMPT.name}=2")
        yield sink
    run.end()


@pytest.mark.parametrize(
    ("made", "group", "role"),
    [
        (named("WorkerDict", worker_dict={"critic": 1, "actor_rollout": 2}), "abc", "actor_rollout+critic"),
        (named("WorkerDict"), "abc", None),
        (named("WorkerDict", worker_dict={}), "abc", None),
        (named("FusedWorker_a_b", fused_worker_dict={"ref": 1}), "abc", "ref"),
        (named("FusedWorker_a_b"), "abc", None),
        (named("TrainingWorker"), "abc", "trainer"),
        (named("CheckpointEngineWorker"), "rollout_standalone_0", "rollout"),
        (named("CheckpointEngineWorker"), "rollout_reward_colocate_1", "rm"),
        (named("CheckpointEngineWorker"), "rollout_teacher_standalone_1", "teacher"),
        (named("ActorRolloutRefWorker", role="actor"), "abc", "actor"),
        (named("Mine"), "abc", "Mine"),
        (None, "abc", None),
    ],
)
def test_roles_go_by_verls_names(made: Any, group: str, role: str | None) -> None:
    assert companion.role_of(made, {"WG_PREFIX": group}) == role


def test_a_worker_publishes_its_place_from_threads_of_its_own(verl_worker: ModuleType, sink: OtlpSink) -> None:
    outer = type("WorkerDict", (verl_worker.Worker,), {})()
    inner = verl_worker.Worker()
    time.sleep(0.3)
    assert sink.series(names.JOB_PLACEMENT) == []  # while the roles are not known
    outer.worker_dict = {"actor": inner}
    (point, *_) = wait_until(lambda: sink.series(names.JOB_PLACEMENT))
    assert (point.value, point.attributes[names.ATTR_JOB_RANK.name], point.attributes[names.ATTR_JOB_ROLE.name]) == (
        1,
        3,
        "actor",
    )
    assert point.resource[names.ATTR_RUN_ID.name] == "run-7"
    assert point.resource[names.ATTR_SERVICE_INSTANCE_ID.name] == "run-7.2.group.3"
    assert sink.spans() == []
    assert {p.resource[names.ATTR_SERVICE_INSTANCE_ID.name] for p in sink.metrics()} == {"run-7.2.group.3"}
    STATE.worker.close()


def test_a_flush_exports_at_once(verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")
    trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
    wait_until(lambda: STATE.worker.telemetry)
    assert process.flush(trainer, 5.0)
    assert len(sink.series(names.JOB_PLACEMENT)) == 1
    STATE.worker.close()


def test_the_last_export_places_a_worker_that_is_gone(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "600000")
    trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
    wait_until(lambda: STATE.worker.telemetry)
    gone = weakref.ref(trainer)
    del trainer
    assert gone() is None
    STATE.worker.close()
    (point,) = sink.series(names.JOB_PLACEMENT)
    assert point.attributes[names.ATTR_JOB_ROLE.name] == "trainer"


def test_without_a_collector_every_worker_has_a_file_of_its_own(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
    wait_until(lambda: STATE.worker.telemetry)
    assert process.flush(trainer, 5.0)
    STATE.worker.close()
    (file,) = tmp_path.iterdir()
    assert file.name == "metrics-group.3.jsonl"
    assert names.JOB_PLACEMENT.name in file.read_text()


def test_a_worker_of_another_run_is_left_alone(verl_worker: ModuleType) -> None:
    assert isinstance(verl_worker.Worker(), Worker)
    assert STATE.worker is None
    assert process.flush(None, 1.0) is False


def test_a_worker_survives_whatever_fails(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "companion", lambda *_: 1 / 0)
    assert isinstance(verl_worker.Worker(), Worker)


def test_a_gpu_that_cannot_be_told_costs_its_name_only(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companion, "_device_ids", lambda *_: None)
    trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
    (point, *_) = wait_until(lambda: sink.series(names.JOB_PLACEMENT))
    assert names.ATTR_HW_ID.name not in point.attributes
    STATE.worker.close()
    del trainer


@pytest.mark.parametrize(
    ("given", "interval"),
    [
        ({}, "5000"),
        ({"OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "9464"}, "5000"),
        ({"OTEL_METRICS_EXPORTER": "none", "OTEL_METRIC_EXPORT_INTERVAL": "9"}, "9"),
    ],
)
def test_workers_export_soon_and_leave_the_trainer_its_port(given: dict[str, str], interval: str) -> None:
    chosen = companion._exporting(given)
    assert chosen.get("OTEL_METRICS_EXPORTER") == given.get("OTEL_METRICS_EXPORTER")
    assert (chosen["OTEL_EXPORTER_PROMETHEUS_PORT"], chosen["OTEL_METRIC_EXPORT_INTERVAL"]) == ("0", interval)


def test_the_setup_hook_cannot_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "akka_otel_callbacks.verl.plugin", None)  # an import of it raises
    assert setup_hook() is None


def test_the_hook_is_cheap(verl_worker: ModuleType) -> None:
    """Outside a run it costs next to nothing, and `os.environ` is all that it looks at besides the call stack."""
    assert handed_on.RUN_VARIABLE not in os.environ
    started = time.thread_time()
    for _ in range(100):
        verl_worker.Worker()
    assert (time.thread_time() - started) / 100 < 0.01


def test_the_switch_of_the_gpu_figures_reaches_a_worker(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akka_otel_callbacks.common.gpu import health
    from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
    from akka_otel_callbacks.common.gpu.nvml import Nvml

    gpus = FakeNvml(FakeGpu())
    monkeypatch.setattr(health, "Nvml", lambda backend=None, off=False: Nvml(gpus, off=off))
    monkeypatch.setattr(companion, "_device_ids", lambda *_: [0])
    for switched_off in (True, False):  # what the sink has of the second, it must not have of the first
        STATE.reset()
        monkeypatch.setenv("AKKA_OTEL_GPU_DISABLE", "1" if switched_off else "")
        trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
        wait_until(lambda: sink.series(names.JOB_PLACEMENT))
        if not switched_off:
            wait_until(lambda: sink.series(names.HW_TEMPERATURE))
        STATE.worker.close()
        has_id = any(names.ATTR_HW_ID.name in point.attributes for point in sink.series(names.JOB_PLACEMENT))
        assert (names.HW_TEMPERATURE.name in sink.names(), has_id) == (not switched_off, not switched_off)
        del trainer


def test_a_worker_that_was_not_told_who_the_run_is_says_nothing(
    verl_worker: ModuleType, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has what the driver gave to the job, and nothing from the trainer's process: any ID would be an invention."""
    monkeypatch.setenv(handed_on.RUN_VARIABLE, environment.to_launch({}, {})[handed_on.RUN_VARIABLE])
    trainer = type("TrainingWorker", (verl_worker.Worker,), {})()
    time.sleep(0.4)
    assert STATE.worker.telemetry is None
    assert sink.metrics() == []
    del trainer


@pytest.mark.parametrize(
    ("rank", "on_node", "speaks"), [(0, "8", True), (3, "8", False), (8, "8", True), (3, "", True)]
)
def test_one_worker_of_each_node_says_where_the_figures_are(rank: int, on_node: str, speaks: bool) -> None:
    assert companion._speaks_for_node({"RANK": str(rank), "RAY_LOCAL_WORLD_SIZE": on_node}) is speaks
