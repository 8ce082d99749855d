"""What verl's reward loop tells of each score, through verl's own workers and managers, without Ray."""

from __future__ import annotations

import asyncio
import functools
import pickle
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.experimental.reward_loop import reward_loop
from verl.experimental.reward_loop.reward_manager import remote
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.protocol import DataProto
from verl.trainer.ppo import reward

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.graders.call import Call, decoded
from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.graded import graded
from akka_otel_callbacks.common.graders.strikes import JudgeStopped
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.driver import reward_model
from akka_otel_callbacks.verl.rollout import grading, remote_grading, scores, stopping, tool_calls
from akka_otel_callbacks.verl.rollout.fields import GRADED

KEPT = (
    (reward_loop.RewardLoopWorker, "compute_score"),
    (reward_loop.RewardLoopWorker, "compute_score_batch"),
    (reward_loop.RewardLoopManager, "compute_rm_score"),
    (reward, "get_custom_reward_fn"),
    (reward, "get_default_compute_score"),
    (remote.RemoteRewardManager, "__init__"),
    (remote.RemoteRewardManager, "choose_reward_worker"),
)


@pytest.fixture(autouse=True)
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    for owner, name in KEPT:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    grading.install(reward_loop)
    grading.install_functions(reward)
    reward_model.install_scores(reward_loop)
    remote_grading.install(remote)
    guard.failures.clear()
    yield
    assert not guard.failures


TOKENIZER = SimpleNamespace(decode=lambda ids, **_: "".join(chr(token) for token in ids))


def data(*texts: str) -> DataProto:
    responses = torch.tensor([[*map(ord, text)] for text in texts])
    batch = {"prompts": torch.ones(len(texts), 1).long(), "responses": responses}
    batch["attention_mask"] = torch.ones(len(texts), 1 + responses.shape[1]).long()
    row = {"data_source": "d", "reward_model": {"ground_truth": "x"}}
    others = {name: np.array([value] * len(texts), dtype=object) for name, value in row.items()}
    others["extra_info"] = np.array([{"index": at} for at in range(len(texts))], dtype=object)
    others["raw_prompt"] = np.array([[{"role": "user", "content": "q"}]] * len(texts) + [None], dtype=object)[:-1]
    return DataProto(batch=TensorDict(batch, batch_size=len(texts)), non_tensor_batch=others)


CONFIG = OmegaConf.create(
    {
        "reward": {
            "custom_reward_function": {"path": "/somewhere/my_rewards.py"},
            "reward_model": {"enable": False, "model_path": "/models/org/judge-rm"},
        }
    }
)


def worker(manager: Any, **reward_model: Any) -> Any:
    made = object.__new__(reward_loop.RewardLoopWorker)
    made.config, made.reward_manager = OmegaConf.merge(CONFIG, {"reward": reward_model}), manager
    return made


async def scored(function: Any, *texts: str, term: str = "rule:my_rewards.py") -> list[Any]:
    """Scores of rows that are worked on at once, by verl's manager."""
    made = worker(NaiveRewardManager(CONFIG, TOKENIZER, grading.timed(function, term)))
    return [*await asyncio.gather(*(made.compute_score(data(text)) for text in texts))]


def calls(result: Any) -> list[Call]:
    """As the agent loop finds them, when Ray has carried the result to it."""
    result = pickle.loads(pickle.dumps(result))
    output = SimpleNamespace(extra_fields={scores.INFO: result[scores.INFO]})
    scores.attach([output])
    assert type(output.extra_fields[scores.INFO]) is dict, "other processes cannot read a class of ours"
    return decoded(output.extra_fields[GRADED])


@graded(term="rule:inner.py")
def inner(solution_str: str) -> float:
    time.sleep(0.01)
    if solution_str == "bad":
        raise GraderFailure("ungradable")
    return 0.25


def plain(solution_str: str, **_: Any) -> float:
    return 0.5 + inner(solution_str=solution_str)


async def asynchronous(solution_str: str, **_: Any) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return {"score": 0.5 + inner(solution_str=solution_str), "note": "text"}


@pytest.mark.parametrize("function", [plain, asynchronous])
def test_each_of_many_rollouts_at_once_gets_its_own_calls(function: Any) -> None:
    results = asyncio.run(scored(function, "fine", "bad", "good"))
    assert [result["reward_score"] for result in results] == [0.75, 0.5, 0.75]
    for result, cause in zip(results, (None, "ungradable", None), strict=True):
        first, second = calls(result)
        assert (first.term, first.cause) == ("rule:inner.py", cause)
        assert (second.term, second.cause) == ("rule:my_rewards.py", None)
        assert second.seconds >= first.seconds >= 0.01
        assert GRADED not in result[scores.INFO], "verl would take it for a term"


def test_a_rule_on_the_clock_is_not_timed_twice() -> None:
    bound = functools.partial(reward._call_with_kwargs, inner, {})
    (result,) = asyncio.run(scored(bound, "fine"))
    assert [call.term for call in calls(result)] == ["rule:inner.py"]


def test_a_failure_of_a_plain_function_goes_through_as_ever() -> None:
    def function(**_: Any) -> float:
        raise GraderFailure("timeout")

    with pytest.raises(GraderFailure):
        asyncio.run(scored(function, "a"))


def test_a_manager_that_calls_no_function_is_a_term_itself() -> None:
    class Mine(RewardManagerBase):
        async def run_single(self, data: Any) -> Any:
            await asyncio.sleep(0.01)
            return {"reward_score": 1.0, "reward_extra_info": {"acc": 1.0}}

    made = worker(Mine(CONFIG, TOKENIZER, None))
    (call,) = calls(asyncio.run(made.compute_score(data("a"))))
    assert call.term == "Mine"
    assert call.seconds >= 0.01


def test_a_reward_model_on_the_trainers_devices_is_a_term_by_its_name() -> None:
    """verl makes columns of what the worker returns; what ours has in one is no term."""
    made = worker(None, custom_reward_function={"path": None}, reward_model={"enable": True})

    async def compute_score_disrm(_: Any) -> Any:
        await asyncio.sleep(0.01)
        return {"reward_score": 0.5}

    made.compute_score_disrm = compute_score_disrm
    results = asyncio.run(made.compute_score_batch(data("ab", "cd")))
    manager = object.__new__(reward_loop.RewardLoopManager)
    manager.reward_model_manager, manager.reward_manager_cls = None, RewardManagerBase
    handle = SimpleNamespace(compute_score_batch=SimpleNamespace(remote=lambda _: results))
    manager.reward_loop_workers = [handle]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward_loop.ray, "get", lambda found: found)
        scores = manager.compute_rm_score(data("ab", "cd"))
    assert scores.meta_info["reward_extra_keys"] == []
    for text in scores.non_tensor_batch[GRADED]:
        (call,) = decoded(text)
        assert call.term == "model:judge-rm"
        assert call.seconds >= 0.01


def test_functions_come_timed_from_where_verl_gets_them() -> None:
    with pytest.MonkeyPatch.context() as patch:
        config = OmegaConf.create({"reward": {"custom_reward_function": {"path": __file__, "name": "plain"}}})
        function = reward.get_custom_reward_fn(config)
        assert function.args[0] == "rule:test_grading.py"
        default = reward.get_default_compute_score("naive")
        assert default.args[0] == "default_compute_score"
        assert reward.get_custom_reward_fn(OmegaConf.create({"reward": {}})) is None
        patch.delenv(RUN_VARIABLE)
        assert reward.get_default_compute_score("naive") is not default


def test_outside_a_run_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)

    async def both() -> tuple[Any, Any]:
        made = worker(NaiveRewardManager(CONFIG, TOKENIZER, plain))
        return await made.compute_score(data("a")), await made.compute_score_batch(data("a"))

    result, batched = asyncio.run(both())
    assert (type(result), type(result[scores.INFO])) == (dict, dict)
    assert batched == [result]


def test_a_users_own_threads_stay() -> None:
    async def loop_of_a_user() -> Any:
        from concurrent.futures import ThreadPoolExecutor

        own = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(own)
        await scored(plain, "a", "b")
        return asyncio.get_running_loop()._default_executor is own  # type: ignore[attr-defined]

    assert asyncio.run(loop_of_a_user())


def test_the_manager_remote_asks_its_workers_for_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers are Ray's: what they are given is pickled, and so is what they answer."""

    class Actor:
        @staticmethod
        def options(**_: Any) -> Any:
            return SimpleNamespace(remote=Actor)

        def __init__(self, function: Any) -> None:
            self.function = pickle.loads(pickle.dumps(function))
            self.compute_score = SimpleNamespace(remote=self.answer)

        async def answer(self, **row: Any) -> Any:
            return pickle.loads(pickle.dumps(await asyncio.to_thread(self.function, **row)))

    monkeypatch.setattr(remote, "RewardComputeWorker", Actor)
    context = SimpleNamespace(get_node_id=lambda: "0" * 56)
    monkeypatch.setattr(remote.ray, "get_runtime_context", lambda: context)
    config = OmegaConf.merge(CONFIG, {"reward": {"num_workers": 2}})
    timed = grading.timed(plain, "rule:my_rewards.py")

    async def score() -> Any:
        made = worker(remote.RemoteRewardManager(config=config, tokenizer=TOKENIZER, compute_score=timed))
        return await made.compute_score(data("fine"))

    result = asyncio.run(score())
    assert result["reward_score"] == 0.75
    assert [call.term for call in calls(result)] == ["rule:inner.py", "rule:my_rewards.py"]
    with pytest.raises(AssertionError):
        remote.RemoteRewardManager(config=config, tokenizer=TOKENIZER, compute_score=asynchronous)


# -- The end of a job


class Queue:
    def __init__(self) -> None:
        self.tags: dict[str, Any] = {}

    async def async_kv_put(self, key: str, partition_id: str, tag: Any = None) -> None:
        self.tags[key] = tag

    def kv_list(self, partition_id: str | None = None) -> Any:
        return {"train": dict(self.tags)} if self.tags else None


def ended(error: BaseException) -> Queue:
    """The queue after a rollout whose score failed, as verl's agent loop leaves it."""
    queue = Queue()
    stopping.install(queue)  # type: ignore[arg-type]

    class Worker:
        async def _compute_score(self, outputs: Any) -> None:
            raise error

        def _postprocess(self, inputs: Any) -> None: ...

    tool_calls.install_worker(SimpleNamespace(AgentLoopWorker=Worker))  # type: ignore[arg-type]

    async def rollout() -> None:
        await queue.async_kv_put(key="a", partition_id="train", tag={"status": "running"})
        with pytest.raises(type(error)):
            await Worker()._compute_score([])
        await queue.async_kv_put(key="a", partition_id="train", tag={"status": "failure"})
        await queue.async_kv_put(key="b", partition_id="train", tag={"status": "finished"})

    asyncio.run(rollout())
    return queue


def test_a_judge_that_gave_up_ends_the_trainer() -> None:
    queue = ended(JudgeStopped("the judge says no"))
    assert queue.tags["b"] == {"status": "finished"}
    with pytest.raises(JudgeStopped, match="the judge says no"):
        queue.kv_list()


def test_any_other_failed_rollout_is_verls_affair() -> None:
    assert ended(RuntimeError("a tool broke")).kv_list() == {
        "train": {"a": {"status": "failure"}, "b": {"status": "finished"}}
    }
    queue = Queue()
    stopping.install(queue)  # type: ignore[arg-type]
    assert queue.kv_list() is None


def test_rays_exception_of_two_classes_is_understood() -> None:
    from ray.exceptions import RayTaskError

    error = RayTaskError("compute_score", "a long traceback", JudgeStopped("the judge says no"))
    with pytest.raises(JudgeStopped, match=r"^the judge says no$"):
        ended(error.as_instanceof_cause()).kv_list()
