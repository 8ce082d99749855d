"""Entropy and KL divergence per token beside verl's real aggregation, against sums over single tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos as verl_core
from verl.trainer.ppo import ray_trainer as verl_trainer
from verl.utils import tensordict_utils
from verl.utils.metric import Metric, reduce_metrics
from verl.workers.config import ActorConfig
from verl.workers.utils import losses as verl_losses

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.driver import per_token
from akka_otel_callbacks.verl.driver.rollout_figures import mean_per_token
from akka_otel_callbacks.verl.driver.vocabulary import rl_step
from akka_otel_callbacks.verl.state import STATE

MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
KL_TYPES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3", "k3+", "abs+")
ROWS, TOKENS = 8, 12
OF_THE_BATCH = ("old_log_probs", "ref_log_prob", "advantages", "response_mask")


@pytest.fixture(autouse=True)
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """verl's modules, hooked, in a process of a run; verl's own functions are back afterwards."""
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    for module, name in (
        (verl_core, "agg_loss"),
        (verl_core, "kl_penalty"),
        (verl_losses, "ppo_loss"),
        (verl_losses, "agg_loss"),
        (verl_losses, "kl_penalty"),
        (verl_trainer, "apply_kl_penalty"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    per_token.install(verl_core)
    per_token.install_loss(verl_losses)
    per_token.install_penalty(verl_trainer)
    verl_losses.agg_loss, verl_losses.kl_penalty = verl_core.agg_loss, verl_core.kl_penalty
    monkeypatch.setattr(verl_losses, "no_padding_2_padding", lambda tensor, data: tensor)
    guard.failures.clear()
    yield
    assert not guard.failures


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def mask(seed: int = 9) -> torch.Tensor:
    """Completions of different lengths, one with a hole, as of a tool's response."""
    lengths = 1 + (random(seed, ROWS) * TOKENS).long()
    found = (torch.arange(TOKENS)[None] < lengths[:, None]).long()
    found[:, 3:5] = 0
    found[:, 0] = 1
    return found


def per_single_token(values: torch.Tensor, counted: torch.Tensor) -> float:
    taken = [values[row, at].item() for row in range(len(counted)) for at in range(TOKENS) if counted[row, at]]
    return sum(taken) / len(taken)


# -- in the trainer's process


@pytest.mark.parametrize("mode", MODES)
def test_the_trainers_entropy_is_kept_per_token_whatever_the_mode(mode: str) -> None:
    STATE.inbox.listening = True
    entropy, counted = random(1, ROWS, TOKENS), mask()
    aggregated = verl_core.agg_loss(loss_mat=entropy, loss_mask=counted, loss_agg_mode=mode, loss_scale_factor=None)
    plain = verl_core.agg_loss.__wrapped__
    assert aggregated == plain(entropy, counted, mode)
    kept, _ = STATE.inbox.take_means()
    assert mean_per_token(kept) == pytest.approx(per_single_token(entropy, counted))
    if mode != "token-mean":
        assert float(aggregated) != pytest.approx(per_single_token(entropy, counted))


def test_a_batch_in_half_precision_is_summed_up_in_full() -> None:
    STATE.inbox.listening = True
    entropy, counted = (6 + random(1, ROWS, TOKENS)).bfloat16(), mask()
    verl_core.agg_loss(entropy, counted, "seq-mean-token-sum")
    kept, _ = STATE.inbox.take_means()
    assert mean_per_token(kept) == pytest.approx(per_single_token(entropy, counted), rel=1e-6)


def test_the_entropy_of_several_batches_is_that_of_all_their_tokens() -> None:
    STATE.inbox.listening = True
    parts = [(random(seed, ROWS, TOKENS) * seed, mask(seed)) for seed in (1, 2, 3)]
    for entropy, counted in parts:
        verl_core.agg_loss(entropy, counted, "seq-mean-token-sum")
    kept, _ = STATE.inbox.take_means()
    every = [torch.cat(tensors) for tensors in zip(*parts, strict=True)]
    assert mean_per_token(kept) == pytest.approx(per_single_token(*every))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_kept_of_a_loss_that_is_computed_in_the_trainers_process_holds_no_graph(mode: str) -> None:
    STATE.inbox.listening = True
    verl_core.agg_loss(random(1, ROWS, TOKENS).requires_grad_(), mask(), mode)
    ((mean, tokens),), _ = STATE.inbox.take_means()
    assert (mean.requires_grad, tokens.requires_grad) == (False, False)


def test_a_part_whose_tokens_were_all_rejected_leaves_the_others_their_mean() -> None:
    STATE.inbox.listening = True
    entropy, counted = random(1, ROWS, TOKENS), mask()
    for part in (counted, torch.zeros_like(counted)):
        verl_core.agg_loss(entropy, part, "seq-mean-token-sum")
    kept, _ = STATE.inbox.take_means()
    assert mean_per_token(kept) == pytest.approx(per_single_token(entropy, counted))
    assert mean_per_token(kept[1:]) is None


def test_nothing_is_kept_where_no_run_listens() -> None:
    verl_core.agg_loss(random(1, ROWS, TOKENS), mask(), "token-mean")
    assert STATE.inbox.take_means() == ([], [])


@pytest.mark.parametrize("estimator", ["kl", "low_var_kl", "abs", "mse"])
def test_a_penalty_on_the_rewards_has_its_divergence_per_token(estimator: str) -> None:
    STATE.inbox.listening = True
    old, reference, counted = -random(1, ROWS, TOKENS), -random(2, ROWS, TOKENS), mask()
    tensors = {"old_log_probs": old, "ref_log_prob": reference, "response_mask": counted}
    batch = TensorDict({**tensors, "token_level_scores": torch.zeros(ROWS, TOKENS)}, batch_size=ROWS)
    controller = verl_core.FixedKLController(kl_coef=0.1)
    _, metrics = verl_trainer.apply_kl_penalty(DataProto(batch=batch), kl_ctrl=controller, kl_penalty=estimator)
    _, kept = STATE.inbox.take_means()
    assert mean_per_token(kept) == pytest.approx(per_single_token(divergence(old, reference, estimator), counted))
    # verl's own is a mean over sequences, of another quantity where the estimator is not one of the KL divergence
    assert metrics["actor/reward_kl_penalty"] != pytest.approx(mean_per_token(kept), rel=1e-3)


def divergence(log_prob: torch.Tensor, reference: torch.Tensor, estimator: str) -> torch.Tensor:
    """Schulman's k1 where it is the run's own, else his k3, which has the same expectation."""
    log_ratio = reference - log_prob
    return -log_ratio if estimator in ("kl", "k1") else log_ratio.exp() - 1 - log_ratio


# -- in the workers


class Job:
    """An update as verl runs it: mini-batches, each spread over ranks and split into micro-batches."""

    def __init__(self, ranks: int, micro_batches: int, mini_batches: int, **settings: Any) -> None:
        self.config = ActorConfig(
            strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, use_kl_loss=True, **settings
        )
        self.shares = [
            [
                [self._micro_batch(100 * rank + 10 * mini + micro) for micro in range(micro_batches)]
                for rank in range(ranks)
            ]
            for mini in range(mini_batches)
        ]

    def _micro_batch(self, seed: int) -> dict[str, torch.Tensor]:
        named = ("log_probs", "old_log_probs", "ref_log_prob")
        tensors = {name: -random(seed + index, ROWS, TOKENS) for index, name in enumerate(named)}
        return {
            **tensors,
            "entropy": 3 * random(seed + 4, ROWS, TOKENS),
            "advantages": random(seed + 5, ROWS, TOKENS) - 0.5,
            "response_mask": mask(seed + 6),
        }

    def run(self) -> dict[str, float]:
        """verl's own aggregation of what its loss returns."""
        metrics: dict[str, list[Any]] = {}
        for share in self.shares:
            tokens = sum(int(micro["response_mask"].sum()) for rank in share for micro in rank)
            by_rank = [self._of_rank(rank, tokens, len(share)) for rank in share]
            for key in by_rank[0]:
                values = [found[key] for found in by_rank]
                whole = Metric.aggregate_dp(values) if isinstance(values[0], Metric) else values[0]
                metrics.setdefault(key if key.startswith("actor/") else f"actor/{key}", []).append(whole)
        return reduce_metrics(metrics)

    def _of_rank(self, rank: list[dict[str, torch.Tensor]], tokens: int, ranks: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for micro in rank:
            data = TensorDict({key: micro[key] for key in OF_THE_BATCH}, batch_size=ROWS)
            size = ROWS * len(rank) * ranks
            tensordict_utils.assign_non_tensor(data, dp_size=ranks, batch_num_tokens=tokens, global_batch_size=size)
            output = {"log_probs": micro["log_probs"].clone().requires_grad_(), "entropy": micro["entropy"]}
            loss, metrics = verl_losses.ppo_loss(self.config, output, data)
            assert loss.requires_grad
            for key, value in metrics.items():
                if key in found and isinstance(value, Metric):
                    found[key].extend(value)
                else:
                    found[key] = value
        return found

    def mean(self, values: Any) -> float:
        """The mean over the mini-batches of the mean per token of each."""
        means = []
        for share in self.shares:
            micros = list(itertools.chain.from_iterable(share))
            means.append(
                per_single_token(
                    torch.cat([values(micro) for micro in micros]),
                    torch.cat([micro["response_mask"] for micro in micros]),
                )
            )
        return sum(means) / len(means)


@pytest.mark.parametrize(("ranks", "micro_batches", "mini_batches"), [(1, 1, 1), (2, 3, 2)])
@pytest.mark.parametrize("mode", MODES)
def test_the_updates_entropy_and_divergence_are_per_token_whatever_the_mode(
    mode: str, ranks: int, micro_batches: int, mini_batches: int
) -> None:
    job = Job(ranks, micro_batches, mini_batches, loss_agg_mode=mode, kl_loss_type="low_var_kl")
    row = job.run()
    entropy = job.mean(lambda micro: micro["entropy"])
    kl = job.mean(lambda micro: divergence(micro["log_probs"], micro["ref_log_prob"], "k3"))
    if mode == "token-mean":
        assert not {per_token.ENTROPY, per_token.KL} & row.keys(), "verl's own are the figures"
        assert (row["actor/entropy_loss"], row["actor/kl_loss"]) == (
            pytest.approx(entropy),
            pytest.approx(kl, rel=1e-4),
        )
        return
    assert row["actor/entropy_loss"] != pytest.approx(entropy, rel=1e-3)
    step = rl_step(row)
    assert (step.entropy, step.kl) == (pytest.approx(entropy), pytest.approx(kl, rel=1e-4))


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum"])
@pytest.mark.parametrize("estimator", KL_TYPES)
def test_the_divergence_is_an_estimate_of_the_kl_divergence_whatever_the_run_penalizes(
    estimator: str, mode: str
) -> None:
    job = Job(1, 2, 2, loss_agg_mode=mode, kl_loss_type=estimator)
    expected = job.mean(lambda micro: divergence(micro["log_probs"], micro["ref_log_prob"], estimator))
    assert rl_step(job.run()).kl == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_loss_and_its_gradients_stay_as_they_are(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gradients() -> tuple[float, torch.Tensor]:
        job = Job(1, 1, 1, loss_agg_mode=mode, kl_loss_type="abs", entropy_coeff=0.5)
        micro = job.shares[0][0][0]
        data = TensorDict(
            {key: micro[key] for key in ("old_log_probs", "ref_log_prob", "advantages", "response_mask")},
            batch_size=ROWS,
        )
        tensordict_utils.assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=None)
        log_probs = micro["log_probs"].clone().requires_grad_()
        loss, _ = verl_losses.ppo_loss(job.config, {"log_probs": log_probs, "entropy": micro["entropy"]}, data)
        loss.backward()
        assert log_probs.grad is not None
        return loss.item(), log_probs.grad

    with_telemetry = gradients()
    monkeypatch.delenv(RUN_VARIABLE)
    without = gradients()
    assert with_telemetry[0] == without[0]
    assert torch.equal(with_telemetry[1], without[1])


def test_a_figure_that_cannot_be_had_is_nan_and_never_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl refuses to average an entry that one worker has fewer values of than the others."""
    plain = verl_core.agg_loss.__wrapped__

    def fails(loss_mat: Any, loss_mask: Any, loss_agg_mode: str, **info: Any) -> Any:
        if loss_agg_mode == "token-mean":
            raise RuntimeError("out of memory")
        return plain(loss_mat, loss_mask, loss_agg_mode, **info)

    monkeypatch.setattr(verl_core, "agg_loss", fails)
    per_token.install(verl_core)
    monkeypatch.setattr(verl_losses, "agg_loss", verl_core.agg_loss)
    row = Job(1, 2, 1, loss_agg_mode="seq-mean-token-sum", kl_loss_type="k3").run()
    assert math.isnan(row[per_token.ENTROPY])
    assert math.isnan(row[per_token.KL])
    assert guard.failures.total() > 0
    guard.failures.clear()


def test_outside_a_run_nothing_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    row = Job(1, 1, 1, loss_agg_mode="seq-mean-token-sum", kl_loss_type="abs").run()
    assert not {per_token.ENTROPY, per_token.KL} & row.keys()
