"""Every figure of real supervised trainings, under torchrun and on a Ray cluster, against verl's own log."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.support.traces import check_trace, named
from tests.verl.e2e import fills
from tests.verl.e2e.harness import CLUSTER_POD, DRIVER_POD, PARENT_ID, TRACE_ID, Case, Run, trained
from tests.verl.e2e.replays import check_replays
from tests.verl.e2e.saves import check_saves, saves

FILLS = "tests.verl.e2e.fills"
WARM_UP = ("optim.lr_warmup_steps=10",)
"""Every step has a learning rate of its own."""
CASES = {
    "torchrun": Case("sft", workers=2, external=FILLS, extra=WARM_UP, loggers=("tensorboard",)),
    "ray-cluster": Case("sft-ray", workers=2, cluster=True, external=FILLS, extra=WARM_UP),
}
GAUGES = {
    names.SFT_STEP_LOSS: "train/loss",
    names.SFT_STEP_GRAD_NORM: "train/grad_norm",
    names.SFT_STEP_TOKENS: "train/global_tokens",
    names.SFT_STEP_MFU: "train/mfu",
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with trained(CASES[request.param], tmp_path_factory.mktemp("run")) as run:
        yield run


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


def test_it_trains_and_nothing_of_the_telemetry_fails(run: Run) -> None:
    assert run.status == 0, run.output[-3000:]
    assert len(run.steps) == 3
    assert "telemetry failed" not in run.output
    assert "lacks what" not in run.output


def test_its_logs_replay_to_the_same_figures(run: Run) -> None:
    check_replays(run)


def test_gauges_are_what_verl_logged(run: Run) -> None:
    for metric, key in GAUGES.items():
        assert run.steps[-1][key] > 0
        assert run.value(metric) == close(run.steps[-1][key]), metric.name
    assert run.steps[-1]["train/lr"] > run.steps[-2]["train/lr"] > 0
    assert run.value(names.SFT_STEP_LEARNING_RATE) == close(run.steps[-2]["train/lr"])


def test_the_evaluation_is_the_latest(run: Run) -> None:
    losses = [data["val/loss"] for _, data in run.log if "val/loss" in data]
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    assert len(losses) == 2
    assert run.value(names.SFT_EVAL_LOSS) == (close(finite[-1]) if finite else None)


def test_steps_are_counted_and_timed(run: Run) -> None:
    assert run.value(names.SFT_STEP_COUNT) == 3
    durations = run.point(names.SFT_STEP_DURATION).histogram
    latest = run.value(names.SFT_STEP_TIMING, {names.ATTR_SFT_STEP_PHASE: names.SftStepPhase.STEP})
    assert durations.count == 3
    assert durations.min <= latest <= durations.max
    assert run.value(names.SFT_STEP_THROUGHPUT) == close(run.steps[-1]["train/global_tokens"] / latest / 2)


def test_memory_is_that_of_the_fuller_worker(run: Run) -> None:
    """Under torchrun with several processes nobody sees them all."""
    parts = {part: point.value for part, point in run.by(names.STEP_MEMORY, names.ATTR_MEMORY_COMPONENT).items()}
    marks = run.value(names.SFT_STEP_MEMORY_MAX_ALLOCATED), run.value(names.SFT_STEP_MEMORY_MAX_RESERVED)
    if not run.case.cluster:
        assert (parts, marks) == ({}, (None, None))
        return
    most = fills.HELD + fills.LOADING
    assert marks == (most, most)
    assert sum(parts.values()) == fills.TOTAL
    assert parts["gradients"] + parts["activations"] == fills.update_of(rank=1)  # of the third step


def test_every_worker_says_where_it_runs(run: Run) -> None:
    placements = run.placements()
    assert placements.keys() == {(names.JobRole.TRAINER, 0), (names.JobRole.TRAINER, 1)}
    pod = CLUSTER_POD if run.case.cluster else DRIVER_POD
    for points in placements.values():
        assert {point.attributes[names.ATTR_K8S_POD_NAME.name] for point in points} == {pod}
        assert all(names.ATTR_HW_ID.name not in point.attributes for point in points)
    assert run.last[0].resource[names.ATTR_K8S_POD_NAME.name] == DRIVER_POD


def test_all_processes_name_the_same_run(run: Run) -> None:
    """Under torchrun too, whose processes have no driver and where no variable names the run."""
    for attribute, expected in {
        names.ATTR_RUN_ID: run.run_id,
        names.ATTR_RUN_ENGINE: names.RunEngine.VERL,
        names.ATTR_RUN_METHOD: names.RunMethod.SFT,
        names.ATTR_RUN_BASE_MODEL: "model",
        names.ATTR_PROJECT: "e2e",
    }.items():
        assert {point.resource[attribute.name] for point in run.points} == {expected}
    assert len({point.resource[names.ATTR_RUN_SETTINGS_SHA.name] for point in run.points}) == 1
    assert len({point.resource[names.ATTR_SERVICE_INSTANCE_ID.name] for point in run.points}) == 3


def test_the_last_step_s_checkpoint_is_a_stage_and_a_phase(run: Run) -> None:
    """Of weights alone, as the recipe has it. verl logs no time of it."""
    check_saves(run, 1, None)
    saving = {names.ATTR_SFT_STEP_PHASE: names.SftStepPhase.SAVE_CHECKPOINT}
    (span,) = saves(run)
    assert run.value(names.SFT_STEP_TIMING, saving) == pytest.approx((span.end_ns - span.start_ns) / 1e9, abs=0.05)


def test_the_job_has_one_span_in_the_trace_that_started_it(run: Run) -> None:
    job = check_trace(run.sink.spans(), TRACE_ID, PARENT_ID)
    assert job.attributes == {}


def test_every_validation_has_its_span_and_the_latest_its_time(run: Run) -> None:
    logged = [data for _, data in run.log if "val/loss" in data]
    found = named(run.sink.spans(), names.SPAN_EVAL.name)
    assert len(found) == len(logged) == 2
    latest = run.value(names.SFT_STEP_TIMING, {names.ATTR_SFT_STEP_PHASE: names.SftStepPhase.EVAL})
    assert latest == pytest.approx((found[-1].end_ns - found[-1].start_ns) / 1e9, abs=1e-6)
