"""Who the run is: one identity from the first use to the end, and another attempt for every further training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.presence import Presence
from akka_otel_callbacks.common.run import attempt, handed_on
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl import run, settings
from akka_otel_callbacks.verl.state import STATE

CONFIG: dict[str, Any] = {
    "trainer": {"logger": ["console", "akka_otel"]},
    "actor_rollout_ref": {"model": {"path": "org/model"}, "actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}},
    "algorithm": {"adv_estimator": "grpo"},
}
RUN_ID, ATTEMPT = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "_begun", {})


def trained(config: Any = CONFIG, **attributes: object) -> tuple[str, int]:
    """ID and attempt of a training that has ended."""
    said = ",".join(f"{name}={value}" for name, value in attributes.items())
    identity = run.identity(config, {"OTEL_RESOURCE_ATTRIBUTES": said})
    run.end()
    return identity.run_id, identity.attempt


def test_the_identity_stays_the_same_to_the_end_of_the_run() -> None:
    first = run.identity(CONFIG, {})
    assert first.attributes[names.ATTR_RUN_METHOD.name] == "GRPO"
    assert run.identity({}, {"OTEL_RESOURCE_ATTRIBUTES": f"{RUN_ID}=later"}) is first
    assert run.is_known()
    run.end()
    assert not run.is_known()
    assert run.identity(CONFIG, {}).run_id != first.run_id


def test_every_training_of_a_process_has_an_id_of_its_own_or_an_attempt() -> None:
    (first, one), (second, again) = trained(), trained()
    assert first != second
    assert (one, again) == (1, 1)
    assert [trained(**{RUN_ID: "mine"}) for _ in range(3)] == [("mine", 1), ("mine", 2), ("mine", 3)]
    assert [trained(**{RUN_ID: "yours", ATTEMPT: 5}) for _ in range(2)] == [("yours", 5), ("yours", 6)]


@pytest.mark.skipif(sys.platform != "linux", reason="no abstract socket addresses")
def test_an_attempt_that_is_published_already_is_passed_over() -> None:
    live = Presence("live", 1, select({}, "live").metrics)
    assert live.take()
    try:
        assert trained(**{RUN_ID: "live"}) == ("live", 2)
    finally:
        live.leave()


def test_each_trainings_settings_are_its_own() -> None:
    faster = {**CONFIG, "actor_rollout_ref": {**CONFIG["actor_rollout_ref"], "actor": {"optim": {"lr": 1e-3}}}}
    rates = []
    for config in (CONFIG, faster):
        rates.append(run.identity(config, {}).attributes[names.ATTR_RUN_LEARNING_RATE.name])
        run.end()
    assert rates == [1e-6, 1e-3]


def test_a_worker_is_of_the_run_that_the_trainers_process_names() -> None:
    trainer = run.identity(CONFIG, {"OTEL_RESOURCE_ATTRIBUTES": "k8s.pod.name=trainers,team=red"})
    told = {handed_on.RUN_VARIABLE: handed_on.written(trainer.attributes)}
    run.end()
    own = f"k8s.pod.name=mine,{RUN_ID}=other,{ATTEMPT}=9"
    worker = run.identity(None, {**told, "OTEL_RESOURCE_ATTRIBUTES": own})
    assert worker.attributes[names.ATTR_K8S_POD_NAME.name] == "mine"
    shared = {name: value for name, value in trainer.attributes.items() if not name.startswith(handed_on.OWN)}
    assert shared.items() <= worker.attributes.items()


def test_what_another_process_of_torchrun_found_out_is_taken() -> None:
    run.adopt(Attempt("of-rank-0", 4))
    assert trained() == ("of-rank-0", 4)
    assert trained()[0] != "of-rank-0"


def test_a_configuration_of_hydra_says_what_a_plain_one_says() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
    unset = {**CONFIG, "reward": {"model": "???"}}
    said = {"OTEL_RESOURCE_ATTRIBUTES": f"{RUN_ID}=r,{ATTEMPT}=1"}
    of_hydra = run.identity(omegaconf.OmegaConf.create(unset), said).attributes
    run.end()
    STATE.trainings_ended.clear()
    assert run.identity(unset, said).attributes == of_hydra


def test_a_configuration_that_cannot_be_described_is_a_run_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "lora_rank", lambda config: int("eight"))
    assert trained(**{RUN_ID: "mine"}) == ("mine", 1)


@pytest.fixture
def resuming(tmp_path: Path) -> Any:
    """verl's configuration where a checkpoint of the run's second attempt is."""
    checkpoint = tmp_path / "global_step_4"
    checkpoint.mkdir()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("4")
    Attempt("saved", 2).write(checkpoint)
    return {**CONFIG, "trainer": {**CONFIG["trainer"], "resume_mode": "auto", "default_local_dir": str(tmp_path)}}


def test_a_training_that_resumes_is_the_next_attempt_of_the_checkpoints_run(resuming: Any) -> None:
    assert trained(resuming) == ("saved", 3)


def test_unless_the_user_says_otherwise(resuming: Any) -> None:
    assert trained(resuming, **{RUN_ID: "mine"}) == ("mine", 1)
    assert trained(resuming, **{RUN_ID: "saved", ATTEMPT: 9}) == ("saved", 9)
    resuming["trainer"]["resume_mode"] = "disable"
    assert trained(resuming)[0] not in ("saved", "mine")
