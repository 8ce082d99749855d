"""A real training that resumes from the checkpoint of another goes on with its run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.vocabulary import names
from tests.verl.e2e.harness import Case, Run, trained

RUN_ID, ATTEMPT = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name
RESUME = ("trainer.resume_mode=auto",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Run]]:
    """Two of four steps in two processes of torchrun, and then the others."""
    directory = tmp_path_factory.mktemp("run")
    with ExitStack() as trainings:
        first, second = (
            trainings.enter_context(trained(Case("sft", workers=2, steps=steps, extra=RESUME), directory))
            for steps in (2, 4)
        )
        yield first, second


def test_both_train(runs: tuple[Run, Run]) -> None:
    for run in runs:
        assert run.status == 0, run.output[-3000:]
        assert "telemetry failed" not in run.output
    assert "Found latest checkpoint" in runs[1].output


def test_every_process_of_the_second_is_of_the_next_attempt_of_the_same_run(runs: tuple[Run, Run]) -> None:
    identities = [{(point.resource[RUN_ID], point.resource[ATTEMPT]) for point in run.points} for run in runs]
    (run_id,) = {run_id for run_id, _ in identities[0]}
    assert identities == [{(run_id, 1)}, {(run_id, 2)}]


def test_each_checkpoint_names_the_attempt_that_saved_it_or_took_it_last(runs: tuple[Run, Run]) -> None:
    checkpoints = runs[0].directory / "checkpoints"
    run_id = runs[0].points[0].resource[RUN_ID]
    assert Attempt.saver(checkpoints / "global_step_2") == Attempt(run_id, 1)
    assert Attempt.read(checkpoints / "global_step_2") == Attempt(run_id, 2)
    assert Attempt.read(checkpoints / "global_step_4") == Attempt(run_id, 2)


def test_the_second_job_says_what_it_continues_from(runs: tuple[Run, Run]) -> None:
    first, second = ([span for span in run.sink.spans() if span.name == names.SPAN_JOB.name] for run in runs)
    assert [job.attributes for job in (*first, *second)] == [
        {},
        {
            names.ATTR_CHECKPOINT_RESTORE_MODE.name: names.CheckpointRestoreMode.RESUME,
            names.ATTR_CHECKPOINT_SOURCE_RUN_ID.name: runs[0].run_id,
            names.ATTR_CHECKPOINT_SOURCE_ATTEMPT.name: 1,
            names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP.name: 2,
        },
    ]
