"""The upper side of the clip ratio, measured beside verl's real policy loss."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import torch
from verl.trainer.ppo import core_algos as verl_core
from verl.utils.metric import AggregationType, Metric
from verl.workers.config import ActorConfig, PolicyLossConfig

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.driver.vocabulary import rl_step
from akka_otel_callbacks.verl.worker import clip_ratio
from akka_otel_callbacks.verl.worker.clip_ratio import CLIPPED_HIGH

SHAPE = (8, 50)


@pytest.fixture
def core_algos(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """verl's module, hooked, in a process of a run."""
    monkeypatch.setenv(RUN_VARIABLE, "akka.optimize.training.run.id=r")
    monkeypatch.setattr(verl_core, clip_ratio.LOSS, getattr(verl_core, clip_ratio.LOSS))
    monkeypatch.setattr(verl_core, "POLICY_LOSS_REGISTRY", dict(verl_core.POLICY_LOSS_REGISTRY))
    clip_ratio.install(verl_core)
    return verl_core


def arguments(seed: int = 0, **clips: Any) -> dict[str, Any]:
    """Ratios well to both sides of the bounds, advantages of both signs and some of zero, a mask with holes."""
    generator = torch.Generator().manual_seed(seed)
    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **clips)
    advantages = torch.randn(SHAPE, generator=generator)
    advantages[:, ::7] = 0.0
    return {
        "old_log_prob": torch.randn(SHAPE, generator=generator),
        "log_prob": torch.randn(SHAPE, generator=generator).requires_grad_(),
        "advantages": advantages,
        "response_mask": torch.rand(SHAPE, generator=generator) > 0.3,
        "loss_agg_mode": "token-mean",
        "config": config,
    }


def counted(given: dict[str, Any]) -> tuple[float, float]:
    """Both sides by their definition, token by token."""
    low = high = tokens = 0
    config = given["config"]
    for row in range(SHAPE[0]):
        for column in range(SHAPE[1]):
            if not given["response_mask"][row, column]:
                continue
            tokens += 1
            ratio = math.exp(given["log_prob"][row, column].item() - given["old_log_prob"][row, column].item())
            advantage = float(given["advantages"][row, column])
            high += ratio > 1 + config.clip_ratio_high and advantage > 0
            low += ratio < 1 - config.clip_ratio_low and advantage < 0
    return low / tokens, high / tokens


@pytest.mark.parametrize("clips", [{}, {"clip_ratio_low": 0.1, "clip_ratio_high": 0.28}])
def test_the_upper_side_as_counted_and_the_lower_one_as_the_rest(core_algos: ModuleType, clips: dict[str, Any]) -> None:
    given = arguments(**clips)
    _, metrics = core_algos.get_policy_loss_fn("vanilla")(**given)
    low, high = counted(given)
    assert 0.05 < high < 0.5
    assert metrics[CLIPPED_HIGH] == pytest.approx(high, abs=1e-6)
    assert metrics["actor/pg_clipfrac"] - metrics[CLIPPED_HIGH] == pytest.approx(low, abs=1e-6)


def test_the_mean_over_micro_batches_and_workers_keeps_the_sum_of_the_sides(core_algos: ModuleType) -> None:
    """verl averages each entry of the metrics by itself."""
    found = [
        Metric.from_dict(core_algos.get_policy_loss_fn("vanilla")(**arguments(seed))[1], AggregationType.MEAN)
        for seed in range(4)
    ]
    mean = {key: Metric.aggregate_dp([metrics[key] for metrics in found]) for key in found[0]}
    sides = [counted(arguments(seed)) for seed in range(4)]
    assert mean[CLIPPED_HIGH] == pytest.approx(sum(high for _, high in sides) / 4, abs=1e-6)
    assert mean["actor/pg_clipfrac"] - mean[CLIPPED_HIGH] == pytest.approx(sum(low for low, _ in sides) / 4, abs=1e-6)


def test_loss_gradient_and_other_metrics_are_verls_own(core_algos: ModuleType) -> None:
    wrapped, original = core_algos.get_policy_loss_fn("vanilla"), getattr(core_algos, clip_ratio.LOSS).__wrapped__
    results = []
    for loss in (wrapped, original):
        given = arguments()
        value, metrics = loss(**given)
        value.backward()
        metrics.pop(CLIPPED_HIGH, None)
        results.append((value.item(), given["log_prob"].grad.tolist(), metrics))
    assert results[0] == results[1]


def test_positional_arguments(core_algos: ModuleType) -> None:
    assert CLIPPED_HIGH in core_algos.get_policy_loss_fn("vanilla")(*arguments().values())[1]


def test_outside_a_run_nothing_is_measured(core_algos: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE)
    assert CLIPPED_HIGH not in core_algos.get_policy_loss_fn("vanilla")(**arguments())[1]


@pytest.mark.parametrize("mode", ["gspo", "cispo", "sapo", "geo_mean", "clip_cov", "kl_cov"])
def test_losses_that_clip_something_else_have_no_side(core_algos: ModuleType, mode: str) -> None:
    assert CLIPPED_HIGH not in core_algos.get_policy_loss_fn(mode)(**arguments())[1]


def test_the_loss_of_bypass_mode_has_it(core_algos: ModuleType) -> None:
    correction = {"loss_type": "ppo_clip"}
    given = arguments(policy_loss=PolicyLossConfig(loss_mode="bypass_mode", rollout_correction=correction))
    assert CLIPPED_HIGH in core_algos.get_policy_loss_fn("bypass_mode")(**given)[1]


def test_an_error_of_ours_leaves_the_loss_alone(core_algos: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    guard.failures.clear()
    monkeypatch.setattr(clip_ratio, "MAX_LOG_RATIO", "broken")
    value, metrics = core_algos.get_policy_loss_fn("vanilla")(**arguments())
    assert value.requires_grad
    assert math.isnan(metrics[CLIPPED_HIGH])
    assert guard.failures.total() == 1
    guard.failures.clear()


@pytest.mark.parametrize("broken", ["share_above_bound", "share_that_cannot_be_read"])
def test_an_error_on_one_worker_leaves_verls_mean_over_the_workers(
    core_algos: ModuleType, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """verl raises where a worker has fewer values than another. A share of some workers alone is none of the job."""
    guard.failures.clear()
    fails = {
        "share_above_bound": lambda *_: 1 / 0,
        "share_that_cannot_be_read": lambda *_: torch.ones(2),
    }
    loss = core_algos.get_policy_loss_fn("vanilla")
    workers: list[dict[str, Metric]] = [{}, {}]
    for number, worker in enumerate(workers):
        for micro_batch in range(2):
            with monkeypatch.context() as patch:
                if (number, micro_batch) == (1, 0):
                    patch.setattr(clip_ratio, "share_above_bound", fails[broken])
                found = Metric.from_dict(loss(**arguments(micro_batch))[1], AggregationType.MEAN)
            for key, metric in found.items():
                worker.setdefault(key, metric.init_list()).extend(metric)
    row = {key: Metric.aggregate_dp([worker[key] for worker in workers]) for key in workers[0]}
    assert guard.failures.total() == 1
    guard.failures.clear()
    step = rl_step(row)
    assert step.clip_ratio is not None
    assert math.isfinite(step.clip_ratio)
    assert step.clip_ratio_high is not None
    assert step.clip_ratio_low is not None
    assert math.isnan(step.clip_ratio_high)
    assert math.isnan(step.clip_ratio_low)


def test_a_loss_that_the_user_registered_in_its_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def own() -> None: ...

    monkeypatch.setattr(verl_core, clip_ratio.LOSS, lambda config: None)
    monkeypatch.setattr(verl_core, "POLICY_LOSS_REGISTRY", {"vanilla": own})
    clip_ratio.install(verl_core)
    assert verl_core.POLICY_LOSS_REGISTRY["vanilla"] is own


def test_a_verl_without_that_loss_is_reported() -> None:
    with pytest.raises(AttributeError):
        clip_ratio.install(ModuleType("core_algos"))
