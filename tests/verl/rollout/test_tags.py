"""What the agent loops' processes say of each rollout in its tag, through verl's own classes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("verl", reason="verl is not installed in this environment")

from verl.trainer.ppo.v1 import agent_loop_tq
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.rollout import tags
from akka_otel_callbacks.verl.rollout.fields import TALLY, TERMS


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


def test_verl_still_has_the_places_that_are_hooked() -> None:
    assert callable(agent_loop_tq.tq.async_kv_batch_put)


def test_names_of_terms_are_text_that_any_process_can_read() -> None:
    class Name:
        def __str__(self) -> str:
            return "named"

    class Text(str): ...

    terms = tags.numbers({Name(): 1, Text("text"): 2, 3: 3, "\udcff": 4})
    assert terms == {"named": 1, "text": 2, "3": 3, "?": 4}
    assert set(map(type, terms)) == {str}
