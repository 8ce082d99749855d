"""A trainer and a rollout on devices of their own, which end without telling anybody, against verl's own log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.support.traces import named
from tests.verl.e2e.harness import Case, Run, trained
from tests.verl.e2e.saves import check_saves

ROLES = {
    names.RlRole.TRAINER: "fully_async/trainer/idle_ratio",
    names.RlRole.ROLLOUT: "fully_async/rollouter/idle_ratio",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    case = Case("fully-async", extra=("trainer.save_freq=1", "trainer.test_freq=1"))
    with trained(case, tmp_path_factory.mktemp("run")) as run:
        yield run


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=1e-9)


def test_it_trains_and_nothing_of_the_telemetry_fails(run: Run) -> None:
    assert run.status == 0, run.output[-3000:]
    assert len(run.steps) >= 2
    assert len(run.log) > len(run.steps)
    assert "telemetry failed" not in run.output


def test_the_jobs_span_says_that_it_ended_well(run: Run) -> None:
    (job,) = named(run.sink.spans(), names.SPAN_JOB.name)
    assert job.status != 2
    assert names.ATTR_ERROR_TYPE.name not in job.attributes


def test_a_step_is_counted_once_however_many_log_calls_it_has(run: Run) -> None:
    assert run.value(names.RL_STEP_COUNT) == len(run.steps)


def test_figures_of_the_last_step_arrive_although_the_process_is_killed(run: Run) -> None:
    last = run.steps[-1]
    assert run.value(names.RL_STEP_REWARD) == close(last["critic/score/mean"])
    assert run.value(names.RL_STEP_POLICY_LOSS) == close(last["actor/pg_loss"])
    assert run.value(names.RL_STEP_THROUGHPUT) == close(last["perf/throughput"])


def test_every_checkpoint_is_a_stage_also_the_last_that_no_log_has(run: Run) -> None:
    saved = [*(run.directory / "checkpoints").glob("global_step_*")]
    assert saved
    check_saves(run, len(saved), names.CheckpointArtifactKind.FULL_STATE)


def test_every_validation_has_a_span_as_long_as_verl_says(run: Run) -> None:
    logged = [data["rollouter/validate_time"] for _, data in run.log if "rollouter/validate_time" in data]
    found = [span for span in run.sink.spans() if span.name == names.SPAN_EVAL.name]
    assert len(logged) >= 2
    assert sorted((span.end_ns - span.start_ns) / 1e9 for span in found) == pytest.approx(sorted(logged), abs=1e-3)


def test_idle_shares_are_what_verl_logged(run: Run) -> None:
    idle = {role: point.value for role, point in run.by(names.RL_IDLE, names.ATTR_RL_ROLE).items()}
    number = run.log[-1][0]
    merged = {key: value for step, data in run.log if step == number for key, value in data.items()}
    assert idle == {role: close(merged[key]) for role, key in ROLES.items()}


def test_trainer_and_rollout_workers_say_where_they_run(run: Run) -> None:
    assert {role for role, _ in run.placements()} == {"actor", "rollout"}
    assert {point.resource[names.ATTR_RUN_ID.name] for point in run.points} == {run.run_id}
