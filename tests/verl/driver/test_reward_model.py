"""What a reward model on the trainer's own devices says of each rollout, through verl's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from tensordict import TensorDict
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import trainer_base

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.driver import reward_model
from akka_otel_callbacks.verl.rollout.fields import TERMS
from akka_otel_callbacks.verl.state import STATE


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    guard.failures.clear()
    yield
    assert not guard.failures


class RewardModel(RewardLoopManager):
    """verl's manager with a worker that scores at once."""

    reward_model_manager = None

    def __init__(self, infos: list[dict[str, Any]]) -> None:
        self.infos = infos

    def compute_rm_score(self, data: DataProto) -> DataProto:
        terms = {key: np.array([info[key] for info in self.infos]) for key in self.infos[0]}
        scores = TensorDict({"rm_scores": torch.ones(len(self.infos), 2)}, batch_size=len(self.infos))
        return DataProto(batch=scores, non_tensor_batch=terms, meta_info={"reward_extra_keys": list(terms)})


Rows = list[tuple[str, dict[str, Any]]]


def scored(monkeypatch: pytest.MonkeyPatch, rows: Rows, infos: list[dict[str, Any]], partition: str = "train") -> None:
    """Runs verl's own `_compute_reward_colocate`, hooked, with a queue that holds the rollouts."""
    trainer_class = trainer_base.PPOTrainer
    monkeypatch.setattr(trainer_class, "_compute_reward_colocate", trainer_class._compute_reward_colocate)
    reward_model.install(trainer_class)
    held = {
        name: torch.nested.as_nested_tensor([torch.ones(2, dtype=torch.long) for _ in rows], layout=torch.jagged)
        for name in ("prompts", "responses")
    }
    held["raw_prompt"] = [[] for _ in rows]
    queue = SimpleNamespace(kv_batch_get=lambda **_: held, kv_batch_put=lambda **_: None)
    monkeypatch.setattr(trainer_base, "tq", queue)
    trainer = SimpleNamespace(
        reward_loop_manager=RewardModel(infos),
        tokenizer=SimpleNamespace(pad_token_id=0),
        _lengths_to_mask=trainer_class._lengths_to_mask,
    )

    class Batch(SimpleNamespace):
        def __len__(self) -> int:
            return len(rows)

    keys, own = [key for key, _ in rows], [tag for _, tag in rows]
    trainer_class._compute_reward_colocate(trainer, Batch(keys=keys, tags=own, partition_id=partition))


def rows() -> Rows:
    """As the queue gives them anew after every put, with what the agent loops told."""
    return [("a_0_0", {TERMS: {"format": 1.0}}), ("a_1_0", {})]


QUALITY = [{"quality": 0.25, "text": "a"}, {"quality": 0.75, "text": "b"}]


def test_a_reward_model_on_the_trainers_devices_adds_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, rows(), QUALITY)
    balanced = [*reversed(rows())]
    assert reward_model.take_terms(balanced) == [{"quality": 0.75}, {"format": 1.0, "quality": 0.25}]
    assert reward_model.take_terms(rows()) == [{"format": 1.0}, {}], "they are of one step"


def test_updates_of_one_step_are_scored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, rows()[:1], QUALITY[:1])
    scored(monkeypatch, rows()[1:], QUALITY[1:])
    assert reward_model.take_terms(rows()) == [{"format": 1.0, "quality": 0.25}, {"quality": 0.75}]


def test_scores_of_a_validation_are_in_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, rows(), QUALITY, partition="val")
    assert reward_model.take_terms(rows()) == [{"format": 1.0}, {}]
    assert not STATE.reward_model_scores, "its tensors are not kept"


def test_a_reward_model_outside_a_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    scored(monkeypatch, rows(), QUALITY)
    assert reward_model.take_terms(rows()) == [{"format": 1.0}, {}]


def test_verl_still_has_the_places_that_are_hooked() -> None:
    assert callable(trainer_base.PPOTrainer._compute_reward_colocate)
    assert callable(RewardLoopManager.compute_rm_score)
