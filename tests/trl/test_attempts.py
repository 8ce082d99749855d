"""Which attempt of which run a training is: trainings of one callback, trials of a search, and resumed trainings."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import Trainer, TrainerCallback, hyperparameter_search, integrations

from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.presence import Presence
from akka_otel_callbacks.common.run.attempt import FILE, Attempt
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from akka_otel_callbacks.trl.attempts import SAVED
from akka_otel_callbacks.trl.session import Session
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.trl.trainings import online, sft

ID, NUMBER, INSTANCE = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name, names.ATTR_SERVICE_INSTANCE_ID.name


MODE, SOURCE = names.ATTR_CHECKPOINT_RESTORE_MODE.name, names.ATTR_CHECKPOINT_SOURCE_RUN_ID.name
SOURCE_ATTEMPT, SOURCE_STEP = (
    names.ATTR_CHECKPOINT_SOURCE_ATTEMPT.name,
    names.ATTR_CHECKPOINT_SOURCE_ENGINE_STEP.name,
)


def origin(job: Any) -> dict[str, Any]:
    """What a job's span says of the checkpoint that the job continues from."""
    return {
        name: job.attributes[name] for name in (MODE, SOURCE, SOURCE_ATTEMPT, SOURCE_STEP) if name in job.attributes
    }


class Published:
    """What a receiver was told, by training."""

    def __init__(self, sink: OtlpSink) -> None:
        self.sink = sink

    @property
    def jobs(self) -> list[Any]:
        return [span for span in self.sink.spans() if span.name == names.SPAN_JOB.name]

    @property
    def attempts(self) -> list[tuple[str, int]]:
        """Of each job, in the order of their ends."""
        return [(job.resource[ID], job.resource[NUMBER]) for job in self.jobs]

    def steps(self, attempt: tuple[str, int]) -> float:
        counts = [
            point.value
            for point in self.sink.series(names.SFT_STEP_COUNT)
            if (point.resource[ID], point.resource[NUMBER]) == attempt
        ]
        assert counts == sorted(counts), "a counter that begins anew within an attempt"
        return counts[-1]


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        yield Published(sink)


# -- several trainings


def test_each_training_is_an_attempt_of_its_own(tiny_model: str, published: Published) -> None:
    trainer = sft(tiny_model, [AkkaTelemetryCallback()], max_steps=2)
    trainer.train()
    trainer.train()
    trainer.evaluate()
    trainer.train()
    run_id = published.attempts[0][0]
    assert published.attempts == [(run_id, number) for number in (1, 2, 2, 3)], (
        "an evaluation is of the training before"
    )
    assert [published.steps((run_id, number)) for number in (1, 2, 3)] == [2, 2, 2]
    assert [job.resource[INSTANCE] for job in published.jobs] == [f"{run_id}.{number}.0" for number in (1, 2, 2, 3)]


@pytest.mark.skipif(sys.platform != "linux", reason="no abstract socket addresses")
def test_an_attempt_that_is_published_already_is_passed_over() -> None:
    live = Presence("live", 1, select(os.environ, "live").metrics)
    assert live.take()
    try:
        assert AkkaTelemetryCallback(run_id="live")._session.begin_attempt(None) == Attempt("live", 2)
    finally:
        live.leave()


def test_a_forked_child_begins_runs_of_its_own() -> None:
    """A sweep forks a process for each training, and its callback was made before."""

    def begun_in_a_child(session: Session) -> Attempt:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, session.begin_attempt(None).to_json().encode())
            os._exit(0)
        os.waitpid(child, 0)
        begun = Attempt.from_json(os.read(read, 1000))
        os.close(read)
        os.close(write)
        assert begun is not None
        return begun

    session, said = AkkaTelemetryCallback()._session, AkkaTelemetryCallback(run_id="said")._session
    own = [begun_in_a_child(session), session.begin_attempt(None), begun_in_a_child(session)]
    assert [begun.number for begun in own] == [1, 1, 1]
    assert len({begun.run_id for begun in own}) == 3
    assert session.begin_attempt(None) == Attempt(own[1].run_id, 2)
    assert begun_in_a_child(said) == Attempt("said", 1), "what a person says stays"


def test_what_a_person_says_counts_on(tiny_model: str, published: Published) -> None:
    trainer = sft(tiny_model, [AkkaTelemetryCallback(run_id="said", attempt=5)], max_steps=1)
    trainer.train()
    trainer.train()
    sft(tiny_model, [AkkaTelemetryCallback(run_id="said", attempt=5)], max_steps=1).train()
    sft(tiny_model, [AkkaTelemetryCallback(run_id="said")], max_steps=1).train()
    assert published.attempts == [("said", 5), ("said", 6), ("said", 5), ("said", 7)]


class TrialPruned(Exception):
    """As optuna names it."""


class Search:
    """A backend of transformers' search that prunes its second trial."""

    name = "optuna"

    def ensure_available(self) -> None: ...

    def default_hp_space(self, trial: Any) -> dict[str, Any]:
        return {}

    def run(self, trainer: Trainer, n_trials: int, direction: str, **kwargs: Any) -> list[Any]:
        results = []
        for number in range(n_trials):
            pruned.update(now=number == 1)
            try:
                results.append(trainer.train(trial=SimpleNamespace(number=number, params={})))
            except TrialPruned:
                results.append(None)
        return results


pruned = {"now": False}


class Prunes(TrainerCallback):
    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if pruned["now"]:
            raise TrialPruned


def test_each_trial_of_a_search_is_an_attempt(
    tiny_model: str, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    backends = hyperparameter_search.ALL_HYPERPARAMETER_SEARCH_BACKENDS
    monkeypatch.setitem(backends, next(iter(backends)), Search)
    monkeypatch.setattr(Trainer, "_hp_search_setup", lambda trainer, trial: None)
    monkeypatch.setattr(integrations, "hp_params", lambda trial: trial.params)
    monkeypatch.setattr(Trainer, "call_model_init", lambda trainer, trial=None: trainer.model_init())
    trainer = sft(tiny_model, [AkkaTelemetryCallback(), Prunes()], max_steps=2)
    model = trainer.model
    trainer.model_init = lambda: model  # TRL changes the model that it is given, and would not change another
    results = trainer.hyperparameter_search(n_trials=3, backend="optuna")
    assert [result is None for result in results] == [False, True, False]
    run_id = published.attempts[0][0]
    assert published.attempts == [(run_id, 1), (run_id, 2), (run_id, 3)]
    assert [job.status for job in published.jobs] == [0, 0, 0], "a pruned trial is no error"
    assert [published.steps((run_id, number)) for number in (1, 3)] == [2, 2]


# -- resumed trainings

Make = Callable[..., Trainer]
MAKES: dict[str, Make] = {"SFT": sft, "GRPO": functools.partial(online, "GRPO")}
SAVES = {"save_strategy": "steps", "save_steps": 1}


def saved(tiny_model: str, folder: Path, callbacks: Sequence[TrainerCallback] | None = None, make: Make = sft) -> Path:
    """A checkpoint after one step."""
    callbacks = [AkkaTelemetryCallback()] if callbacks is None else callbacks
    make(tiny_model, callbacks, output_dir=str(folder), max_steps=1, **SAVES).train()
    return folder / "checkpoint-1"


def resumed(
    tiny_model: str, folder: Path, checkpoint: Any, callback: AkkaTelemetryCallback | None = None, **settings: Any
) -> Trainer:
    make = settings.pop("make", sft)
    settings = {"max_steps": 2, **SAVES, **settings}
    trainer = make(tiny_model, [callback or AkkaTelemetryCallback()], output_dir=str(folder), **settings)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


@pytest.mark.parametrize(
    "make", [sft, lambda *args, **settings: online("GRPO", *args, **settings)], ids=["SFT", "GRPO"]
)
def test_a_resumed_training_is_the_next_attempt(
    make: Make, tiny_model: str, tmp_path: Path, published: Published
) -> None:
    saved(tiny_model, tmp_path, make=make)
    resumed(tiny_model, tmp_path, True, make=make)
    resumed(tiny_model, tmp_path, str(tmp_path / "checkpoint-2"), make=make, max_steps=3)
    run_id = published.attempts[0][0]
    assert published.attempts == [(run_id, 1), (run_id, 2), (run_id, 3)]
    assert [origin(job) for job in published.jobs] == [
        {},
        {MODE: "resume", SOURCE: run_id, SOURCE_ATTEMPT: 1, SOURCE_STEP: 1},
        {MODE: "resume", SOURCE: run_id, SOURCE_ATTEMPT: 2, SOURCE_STEP: 2},
    ]


def test_two_trainings_from_one_checkpoint_are_two_attempts(
    tiny_model: str, tmp_path: Path, published: Published
) -> None:
    checkpoint = saved(tiny_model, tmp_path)
    run_id = published.attempts[0][0]
    resumed(tiny_model, tmp_path / "elsewhere", str(checkpoint))
    in_another_process(tiny_model, tmp_path / "elsewhere", checkpoint)  # it knows of the second by the checkpoint alone
    assert published.attempts == [(run_id, 1), (run_id, 2), (run_id, 3)]


def test_a_copied_checkpoint_in_a_new_process(tiny_model: str, tmp_path: Path, published: Published) -> None:
    copy = shutil.copytree(saved(tiny_model, tmp_path / "first"), tmp_path / "second" / "checkpoint-1")
    shutil.rmtree(tmp_path / "first")
    run_id = published.attempts[0][0]
    in_another_process(tiny_model, tmp_path / "second", True)
    assert published.attempts == [(run_id, 1), (run_id, 2)]
    assert Attempt.read(copy) == Attempt(run_id, 2)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_run_of_another_name_that_begins_from_a_checkpoint_is_a_branch(
    is_known: bool, tiny_model: str, tmp_path: Path, published: Published
) -> None:
    checkpoint = saved(tiny_model, tmp_path)
    run_id = published.attempts[0][0]
    if not is_known:  # as it was saved without this package
        state = json.loads((checkpoint / "trainer_state.json").read_text())
        del state["stateful_callbacks"][SAVED]
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    child = f"child-{is_known}"
    resumed(tiny_model, tmp_path, str(checkpoint), AkkaTelemetryCallback(run_id=child))
    assert published.attempts[1] == (child, 1)
    known = {MODE: "branch", SOURCE: run_id, SOURCE_ATTEMPT: 1} if is_known else {}
    assert origin(published.jobs[1]) == {**known, SOURCE_STEP: 1}


PROGRAM = """
import json, sys
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.trl.test_attempts import resumed
model, folder, checkpoint = json.loads(sys.argv[1])
resumed(model, folder, checkpoint)
"""


def in_another_process(tiny_model: str, folder: Path, checkpoint: Any, **variables: str) -> None:
    given = json.dumps([tiny_model, str(folder), checkpoint if checkpoint is True else str(checkpoint)])
    subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        timeout=300,
    )


def test_what_a_person_says_of_a_resumed_training(
    tiny_model: str, tmp_path: Path, published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = str(saved(tiny_model, tmp_path))
    run_id = published.attempts[0][0]
    elsewhere = tmp_path / "elsewhere"
    resumed(tiny_model, elsewhere, checkpoint, AkkaTelemetryCallback(run_id=run_id))
    resumed(tiny_model, elsewhere, checkpoint, AkkaTelemetryCallback(attempt=8))
    resumed(tiny_model, elsewhere, checkpoint, AkkaTelemetryCallback(run_id="mine"))
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{ID}=environment,{NUMBER}=4")
    resumed(tiny_model, elsewhere, checkpoint)
    assert published.attempts[1:] == [(run_id, 2), (run_id, 8), ("mine", 1), ("environment", 4)]


def test_a_checkpoint_of_a_training_without_telemetry(tiny_model: str, tmp_path: Path, published: Published) -> None:
    checkpoint = saved(tiny_model, tmp_path, [])
    resumed(tiny_model, tmp_path, str(checkpoint))
    ((run_id, number),) = published.attempts
    assert number == 1
    assert not (checkpoint / FILE).exists(), "it is nobody's checkpoint"
    resumed(tiny_model, tmp_path, str(tmp_path / "checkpoint-2"), max_steps=3)
    assert published.attempts[1] == (run_id, 2)


@pytest.mark.parametrize("restore", [False, True])
def test_a_checkpoint_is_as_good_without_telemetry(
    restore: bool, tiny_model: str, tmp_path: Path, published: Published
) -> None:
    checkpoint = saved(tiny_model, tmp_path)
    trainer = sft(
        tiny_model, [], output_dir=str(tmp_path), max_steps=2, restore_callback_states_from_checkpoint=restore
    )
    trainer.train(resume_from_checkpoint=str(checkpoint))
    assert trainer.state.global_step == 2


def test_callbacks_that_are_restored_leave_ours_alone(tiny_model: str, tmp_path: Path, published: Published) -> None:
    saved(tiny_model, tmp_path)
    callback = AkkaTelemetryCallback(project="kept")
    settings = {"restore_callback_states_from_checkpoint": True}
    trainer = resumed(tiny_model, tmp_path, True, callback, **settings)
    assert callback in trainer.callback_handler.callbacks
    assert published.attempts[1] == (published.attempts[0][0], 2)
    assert published.jobs[1].resource[names.ATTR_PROJECT.name] == "kept"


GARBAGE = [
    7,
    {"attributes": None},
    {"attributes": {"run_id": "../../x\n", "attempt": 1}},
    [{"attributes": {"run_id": "x", "attempt": 3}}],
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=map(str, range(len(GARBAGE))))
def test_garbage_in_a_checkpoint_is_no_run(
    garbage: Any, tiny_model: str, tmp_path: Path, published: Published, checkpoint: Path
) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "checkpoint-1")
    state = json.loads((copy / "trainer_state.json").read_text())
    state["stateful_callbacks"][SAVED] = garbage
    (copy / "trainer_state.json").write_text(json.dumps(state))
    (copy / FILE).write_text("}{")
    resumed(tiny_model, tmp_path, str(copy), save_strategy="no")
    ((run_id, number),) = published.attempts
    assert run_id.startswith("trl-")
    assert number == 1


@pytest.fixture(scope="module")
def checkpoint(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny_model, tmp_path_factory.mktemp("checkpoint"), [])
