"""What the agent loops' processes say of each rollout in its tag, through verl's own classes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from tensordict import TensorDict
from verl.experimental.reward_loop.reward_loop import RewardLoopManager
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import agent_loop_tq, trainer_base
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.rollout import tags
from akka_otel_callbacks.verl.rollout.tags import TERMS
from akka_otel_callbacks.verl.rollout.tool_calls import TALLY


class Queue:
    """The part of the TransferQueue that an agent loop uses; it keeps what it is given."""

    def __init__(self) -> None:
        self.put: list[dict[str, Any]] = []

    async def async_kv_batch_put(self, keys: Any, partition_id: str, fields: Any = None, tags: Any = None) -> str:
        self.put.append({"keys": keys, "partition_id": partition_id, "fields": fields, "tags": tags})
        return "meta"


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    guard.failures.clear()
    yield
    assert not guard.failures


def put(*extras: dict[str, Any], **changed: Any) -> list[dict[str, Any]]:
    """The tags that arrive in the queue with rollouts of these extra fields."""
    queue = Queue()
    tags.install(queue)  # type: ignore[arg-type]
    asked = {
        "keys": [f"a_0_{index}" for index in range(len(extras))],
        "partition_id": "train",
        "fields": list_of_dict_to_tensordict([{"extra_fields": extra} for extra in extras]),
        "tags": [{"status": "success"} for _ in extras],
    }
    assert asyncio.run(queue.async_kv_batch_put(**asked | changed)) == "meta"
    (arrived,) = queue.put
    assert arrived["partition_id"] == "train"
    return arrived["tags"]  # type: ignore[no-any-return]


def test_terms_and_tools_are_in_the_tag() -> None:
    first = {"reward_extra_info": {"score": 1.5, "acc": np.float32(0.5), "pred": "42", "ok": True}, "turn_scores": []}
    second = {"reward_extra_info": {"score": 0.0, "acc": 1, "pred": None, "ok": False}, TALLY: (2, 1)}
    assert put(first, second) == [
        {"status": "success", TERMS: {"score": 1.5, "acc": 0.5, "ok": 1.0}},
        {"status": "success", TERMS: {"score": 0.0, "acc": 1.0, "ok": 0.0}, TALLY: (2, 1)},
    ]


def test_a_rollout_that_was_not_scored_has_no_terms() -> None:
    assert put({"turn_scores": []}) == [{"status": "success", TERMS: {}}]


def test_outside_a_run_the_tags_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    assert put({"reward_extra_info": {"score": 1.5}}) == [{"status": "success"}]


def test_a_put_of_tags_alone_passes() -> None:
    assert put({"turn_scores": []}, fields=None, tags=[{"status": "running"}]) == [{"status": "running"}]
    prompts = {"raw_prompt": ["a"]}
    assert put({"turn_scores": []}, fields=prompts, tags=[{"status": "pending"}]) == [{"status": "pending"}]
    assert put({"turn_scores": []}, tags=None) is None


def test_what_cannot_be_read_costs_its_terms_only() -> None:
    assert put({"reward_extra_info": [1, 2]}) == [{"status": "success"}]
    assert guard.failures.total() == 1
    guard.failures.clear()


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers(), max_size=2), st.binary()
)


@given(st.dictionaries(st.text(), anything))
def test_only_numbers_are_told(info: dict[str, Any]) -> None:
    told = tags.numbers(info)
    assert set(told) == {term for term, value in info.items() if type(value) in (int, float, bool)}
    assert all(type(value) is float for value in told.values())


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
    tags.install_reward_model(trainer_class)
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
    assert tags.take_terms(balanced) == [{"quality": 0.75}, {"format": 1.0, "quality": 0.25}]
    assert tags.take_terms(rows()) == [{"format": 1.0}, {}], "they are of one step"


def test_updates_of_one_step_are_scored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, rows()[:1], QUALITY[:1])
    scored(monkeypatch, rows()[1:], QUALITY[1:])
    assert tags.take_terms(rows()) == [{"format": 1.0, "quality": 0.25}, {"quality": 0.75}]


def test_scores_of_a_validation_are_in_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, rows(), QUALITY, partition="val")
    assert tags.take_terms(rows()) == [{"format": 1.0}, {}]
    assert not tags._scores, "its tensors are not kept"


def test_a_reward_model_outside_a_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    scored(monkeypatch, rows(), QUALITY)
    assert tags.take_terms(rows()) == [{"format": 1.0}, {}]


def test_verl_still_has_the_places_that_are_hooked() -> None:
    assert callable(agent_loop_tq.tq.async_kv_batch_put)
    assert callable(trainer_base.PPOTrainer._compute_reward_colocate)
    assert callable(RewardLoopManager.compute_rm_score)


def test_names_of_terms_are_text_that_any_process_can_read() -> None:
    class Name:
        def __str__(self) -> str:
            return "named"

    class Text(str): ...

    terms = tags.numbers({Name(): 1, Text("text"): 2, 3: 3, "\udcff": 4})
    assert terms == {"named": 1, "text": 2, "3": 3, "?": 4}
    assert set(map(type, terms)) == {str}
