"""A training in which every entry of the telemetry fails is the same training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.verl.e2e import faults
from tests.verl.e2e.harness import Case, Run, trained

EVERY_HOOK = {
    "attempts:Keeper.run",
    "backend:Backend._listen",
    "backend:Backend.finish",
    "backend:Backend.log",
    "batches:_describe",
    "batches:_keep",
    "clip_ratio:_add_upper_side",
    "clip_ratio:_measured",
    "companion:Companion._open",
    "companion:_device_ids",
    "job_memory:JobMemory.ask",
    "memory:_correct_marks",
    "memory:_measure",
    "process:_notice",
    "ray_calls:_forward",
    "ray_calls:_hand_on",
    "ray_calls:_remember",
    "remote_trainer:_end_after",
    "remote_trainer:watch",
    "tags:_tell",
    "tool_calls:_begin",
    "tool_calls:_count",
    "tool_calls:_note_end",
    "tool_calls:_tell",
    "tracking:_close_after",
    "tracking:_open",
    "translator:Translator._translate",
    "worker:_load_plugin",
    "worker_groups:_remember",
    "worker_groups:flush_workers",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp("run")
    environ = {
        faults.FAULTS: str(directory / "faults"),
        "PYTHONPATH": str(pytestconfig.rootpath),
        "VERL_USE_EXTERNAL_MODULES": faults.__name__,
        # the driver fails to hand it on, and without it the workers' hooks would have nothing to do
        "AKKA_OTEL_RUN": f"{names.ATTR_RUN_ID.name}=faulty,{names.ATTR_RUN_ATTEMPT.name}=1",
    }
    hook = f"worker_process_setup_hook={faults.__name__}.setup_hook"
    extra = (
        "data.train_batch_size=2",
        "actor_rollout_ref.actor.ppo_mini_batch_size=2",
        f"+ray_kwargs.ray_init.runtime_env.{hook}",
    )
    with trained(Case("tools", extra=extra, environ=environ), directory) as run:
        yield run


def test_the_faults_reached_every_hook(run: Run) -> None:
    failed = set((run.directory / "faults").read_text().splitlines())
    assert failed >= EVERY_HOOK
    assert "telemetry failed" in run.output


def test_the_training_is_unharmed(run: Run) -> None:
    assert run.status == 0, run.output[-3000:]
    assert [data["training/global_step"] for data in run.steps] == [1, 2, 3]
    assert {len(rollouts) for rollouts in run.rollouts.values()} == {8}
    assert all(data["actor/grad_norm"] > 0 for data in run.steps)
