"""What is seen of a step's rollouts, through verl's own functions and with its own batches."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo import metric_utils as verl_metrics

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.verl.driver import batches
from akka_otel_callbacks.verl.driver.limits import Limits
from akka_otel_callbacks.verl.driver.rollout_figures import set_figures
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.rollout.fields import TALLY, TERMS
from akka_otel_callbacks.verl.state import STATE

PROMPT, WIDTH = 3, 6
LENGTHS = [6, 4, 0, 2]
SCORES = [1.0, 0.5, 0.0, 0.5]
UIDS = ["a", "a", "b", "b"]
INFOS = [{"score": score, "digit": 2 * score, "note": "text"} for score in SCORES]


@pytest.fixture
def metric_utils(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """verl's module, hooked; verl's own function is back afterwards."""
    monkeypatch.setattr(verl_metrics, "compute_data_metrics", verl_metrics.compute_data_metrics)
    batches.install(verl_metrics)
    return verl_metrics


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    STATE.inbox.listening = True
    guard.failures.clear()
    yield
    assert not guard.failures


def token_columns(lengths: list[int], scores: list[float]) -> dict[str, torch.Tensor]:
    """verl's per-token tensors: the score lies on the last token."""
    mask = torch.tensor([[int(position < length) for position in range(WIDTH)] for length in lengths])
    token_scores = torch.zeros(len(lengths), WIDTH)
    for row, (length, score) in enumerate(zip(lengths, scores, strict=True)):
        if length:
            token_scores[row, length - 1] = score
    return {
        "prompts": torch.ones(len(lengths), PROMPT, dtype=torch.long),
        "responses": torch.ones(len(lengths), WIDTH, dtype=torch.long),
        "response_mask": mask,
        "token_level_scores": token_scores,
        "token_level_rewards": token_scores - 0.25,
        "advantages": token_scores,
        "returns": token_scores,
    }


def v0_batch(**others: Any) -> DataProto:
    tensors = token_columns(LENGTHS, SCORES)
    tensors["attention_mask"] = torch.cat([torch.ones(len(LENGTHS), PROMPT), tensors["response_mask"]], dim=1)
    keys = list(INFOS[0])
    return DataProto(
        batch=TensorDict(tensors, batch_size=len(LENGTHS)),
        non_tensor_batch={
            "uid": np.array(UIDS, dtype=object),
            **{key: np.array([info[key] for info in INFOS]) for key in keys},
            **others,
        },
        meta_info={"reward_extra_keys": keys},
    )


def figures(rollouts: list[Rollouts]) -> RLStep:
    step = RLStep()
    set_figures(step, rollouts, Limits(WIDTH))
    return step


def test_a_v0_batch_against_verls_own_figures(metric_utils: ModuleType) -> None:
    logged = metric_utils.compute_data_metrics(v0_batch(), use_critic=False)
    step = figures(STATE.inbox.take(None))
    assert step.reward == pytest.approx(logged["critic/score/mean"])
    assert step.completion_length_max == logged["response_length_non_aborted/max"]
    assert step.completion_length == pytest.approx(logged["response_length_non_aborted/mean"])
    assert step.completion_clipped_ratio == pytest.approx(logged["response_length_non_aborted/clip_ratio"])
    assert step.rollouts == 3
    assert step.frac_reward_zero_std == 0.5  # b is judged by the one of its rollouts that was not aborted
    assert step.reward_term == {"total": pytest.approx(2 / 3), "digit": pytest.approx(4 / 3)}


def test_each_batch_is_seen_by_itself(metric_utils: ModuleType) -> None:
    metric_utils.compute_data_metrics(v0_batch(), use_critic=False)
    other = v0_batch(uid=np.array(["c", "c", "c", "d"], dtype=object))
    metric_utils.compute_data_metrics(other, use_critic=False)
    first, second = STATE.inbox.take(None)
    assert (first.groups, second.groups) == (UIDS, ["c", "c", "c", "d"])


def test_nothing_is_kept_for_nobody(metric_utils: ModuleType) -> None:
    STATE.inbox.listening = False
    metric_utils.compute_data_metrics(batch=v0_batch(), use_critic=False)
    assert STATE.inbox.take(None) == []


def test_verls_figures_and_its_batch_stay_as_they_are(metric_utils: ModuleType) -> None:
    batch, untouched = v0_batch(), v0_batch()
    assert metric_utils.compute_data_metrics(batch=batch, use_critic=False) == pytest.approx(
        metric_utils.compute_data_metrics.__wrapped__(untouched, use_critic=False)
    )
    assert batch.batch.keys() == untouched.batch.keys()
    assert batch.non_tensor_batch.keys() == untouched.non_tensor_batch.keys()


def test_a_batch_that_cannot_be_read_costs_its_figures_only(metric_utils: ModuleType) -> None:
    batch = v0_batch()
    batch.meta_info = None  # verl does not need it here
    assert "critic/score/mean" in metric_utils.compute_data_metrics(batch, use_critic=False)
    assert STATE.inbox.take(None) == []
    assert guard.failures.total() == 1
    guard.failures.clear()


def test_tools_of_a_v0_batch(metric_utils: ModuleType) -> None:
    tallies = np.empty(4, dtype=object)
    tallies[:] = [(2, 1), (0, 0), (5, 5), None]
    metric_utils.compute_data_metrics(v0_batch(**{TALLY: tallies}), use_critic=False)
    step = figures(STATE.inbox.take(None))
    assert (step.tool_calls, step.tool_failure_ratio) == (1.0, 0.5)  # the third was aborted


KEYS = ["b_1_0", "a_0_0", "a_0_1", "b_0_0", "pad"]
TAGS: list[dict[str, Any]] = [
    {"response_len": 2, TERMS: {"digit": 1.0}, TALLY: (1, 0)},
    {"response_len": 6, TERMS: {"digit": 0.5}},
    {"response_len": 3, TERMS: {"digit": 0.5}, TALLY: [3, 3]},
    {"response_len": 4},
    {"response_len": 1, TERMS: {"digit": 0.5}, "is_padding": True},  # verl copies the first row's tag
]


class V1Trainer:
    """The v1 trainers' way with a batch: fetch, drop the padding, compute."""

    global_steps = 7

    def __init__(self, metric_utils: ModuleType) -> None:
        self.metric_utils = metric_utils

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        tensors = token_columns([2, 6, 3, 4], [1.0, 0.0, 0.5, 1.0])
        tensors["prompt_length"] = torch.full((4,), 3.0)
        tensors["response_length"] = torch.tensor([2.0, 6.0, 3.0, 4.0])
        data = DataProto(batch=TensorDict(tensors, batch_size=4))
        metrics.update(self.metric_utils.compute_data_metrics(batch=data, use_critic=False))

    def _compute_reward_colocate(self, batch: Any) -> None: ...


@pytest.fixture
def trainer_base(metric_utils: ModuleType) -> Any:
    module = SimpleNamespace(PPOTrainer=type("PPOTrainer", (V1Trainer,), dict(vars(V1Trainer))))
    batches.install_v1(module)  # type: ignore[arg-type]
    return module


def v1_batch(**tag: Any) -> Any:
    return SimpleNamespace(keys=KEYS, tags=[{"prompt_len": 3, **own, **tag} for own in TAGS], partition_id="train")


def compute(module: Any, metric_utils: ModuleType) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    module.PPOTrainer(metric_utils)._compute_metrics(v1_batch(), metrics, {}, global_steps=7, epoch=0)
    return metrics


def test_a_v1_batch_with_its_tags(trainer_base: Any, metric_utils: ModuleType) -> None:
    assert compute(trainer_base, metric_utils)["response_length/max"] == 6
    (rollouts,) = STATE.inbox.take(None)
    assert rollouts.step == 7
    assert rollouts.tokens == 4 * 3 + 2 + 6 + 3 + 4
    step = figures([rollouts])
    assert step.rollouts == 3  # a_0 left two outputs
    assert step.reward == pytest.approx((1.0 + 0.5 + 1.0) / 3)
    assert step.frac_reward_zero_std == 1.0  # b: 1 and 1; a has one completion only
    assert step.rollout_reward == {"total": [1.0, 0.5, 1.0], "digit": [1.0, 0.5]}
    assert step.completion_clipped_ratio == 0.25
    assert (step.tool_calls, step.tool_failure_ratio) == (2.0, 0.75)


def test_tags_of_loops_without_the_plugin_leave_groups_and_lengths(trainer_base: Any, metric_utils: ModuleType) -> None:
    batch = v1_batch()
    for tag in batch.tags:
        tag.pop(TERMS, None), tag.pop(TALLY, None)
    trainer_base.PPOTrainer(metric_utils)._compute_metrics(batch, {}, {}, global_steps=7, epoch=0)
    step = figures(STATE.inbox.take(None))
    assert (step.rollouts, step.frac_reward_zero_std, step.tool_calls) == (3, 1.0, None)
    assert step.reward_term == {"total": pytest.approx(2.5 / 3)}


def test_rows_that_do_not_match_lose_what_was_said_of_them(trainer_base: Any, metric_utils: ModuleType) -> None:
    """Where every row is padding, verl keeps them all."""
    batch = v1_batch(is_padding=True)
    trainer_base.PPOTrainer(metric_utils)._compute_metrics(batch, {}, {}, global_steps=7, epoch=0)
    (rollouts,) = STATE.inbox.take(None)
    assert (rollouts.groups, rollouts.last_of_session, rollouts.tokens) == (None, None, None)
    assert figures([rollouts]).rollouts == 4


def test_what_one_batch_was_described_with_is_not_left_for_the_next(
    trainer_base: Any, metric_utils: ModuleType
) -> None:
    compute(trainer_base, metric_utils)
    metric_utils.compute_data_metrics(v0_batch(), use_critic=False)
    _, second = STATE.inbox.take(None)
    assert (second.step, second.groups) == (None, UIDS)


def test_an_error_of_verls_own_passes_unchanged(trainer_base: Any, metric_utils: ModuleType) -> None:
    class Broken(RuntimeError):
        pass

    def fail(self: Any, batch: Any) -> None:
        raise Broken

    trainer_base.PPOTrainer._compute_metrics = fail
    batches.install_v1(trainer_base)
    with pytest.raises(Broken):
        trainer_base.PPOTrainer(metric_utils)._compute_metrics(v1_batch())
    assert STATE.inbox.described is None


def test_batches_of_later_steps_wait_for_their_log_call(metric_utils: ModuleType) -> None:
    """fully_async computes the batch of step 2 before it logs step 1."""

    class Separate:
        def __init__(self) -> None:
            self.global_steps = 0

        def _fit_collect_metrics(self, batch: DataProto) -> None:
            metric_utils.compute_data_metrics(batch=batch, use_critic=False)

    module = SimpleNamespace(SeparateRayPPOTrainer=Separate)
    batches.install_separation(module)  # type: ignore[arg-type]
    trainer = Separate()
    for trainer.global_steps in (1, 2):
        trainer._fit_collect_metrics(v0_batch())
    assert [rollouts.step for rollouts in STATE.inbox.take(1.0)] == [1]
    assert [rollouts.step for rollouts in STATE.inbox.take(2.0)] == [2]


def test_a_trainer_that_runs_as_main_is_found(metric_utils: ModuleType) -> None:
    """As verl 0.8's `main_ppo_sync` does, whose `fit` opens the logger."""

    class PPOTrainer(V1Trainer):
        __module__ = "__main__"

        def fit(self) -> None:
            batches.install_main_trainer()

    trainer = PPOTrainer(metric_utils)
    trainer.fit()
    trainer._compute_metrics(v1_batch(), {}, {}, global_steps=7, epoch=0)
    (rollouts,) = STATE.inbox.take(None)
    assert (rollouts.step, figures([rollouts]).rollouts) == (7, 3)


def test_a_trainer_of_another_kind_that_runs_as_main_is_left_alone() -> None:
    """A user's own v0 trainer, which scores with a reward model, too."""

    class Own:
        __module__ = "__main__"

        def _compute_reward_colocate(self, batch: Any) -> None: ...

        def fit(self) -> None:
            batches.install_main_trainer()

    before = dict(vars(Own))
    Own().fit()
    assert dict(vars(Own)) == before


def test_verl_still_has_the_places_that_are_hooked() -> None:
    from verl.experimental.separation import ray_trainer
    from verl.trainer.ppo.v1 import trainer_base

    assert callable(ray_trainer.SeparateRayPPOTrainer._fit_collect_metrics)
    assert callable(trainer_base.PPOTrainer._compute_metrics)


def test_a_batch_takes_the_means_that_were_seen_of_it(metric_utils: ModuleType) -> None:
    for mean in (1.0, 2.0):
        STATE.inbox.entropy.append((mean, 10))
        metric_utils.compute_data_metrics(v0_batch(), use_critic=False)
    assert [batch.entropy for batch in STATE.inbox.take(None)] == [[(1.0, 10)], [(2.0, 10)]]


def test_the_means_of_a_batch_that_cannot_be_read_are_not_the_next_ones(metric_utils: ModuleType) -> None:
    STATE.inbox.entropy.append((1.0, 10))
    unreadable = v0_batch()
    unreadable.meta_info = None
    for batch in (unreadable, v0_batch()):
        metric_utils.compute_data_metrics(batch, use_critic=False)
    (kept,) = STATE.inbox.take(None)
    assert kept.entropy == []
    guard.failures.clear()
