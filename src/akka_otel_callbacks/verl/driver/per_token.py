"""Entropy and KL divergence in nats per token, seen where verl aggregates them.

verl aggregates both as it does the loss, by the run's `loss_agg_mode`. Only the mode `token-mean` gives a figure per
token: `seq-mean-token-sum` gives one per sequence, others one of a scale of their own. And of the estimators that a run
can choose for the divergence, some do not estimate the KL divergence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.patching.calls import Call, after, around
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.state import STATE

TOKEN_MEAN = "token-mean"
KL_ESTIMATORS = frozenset({"kl", "k1", "low_var_kl", "k3"})
"""verl's names of estimators whose expectation is the KL divergence. That of `abs`, `mse` and `k2` is not."""
ESTIMATOR = "low_var_kl"
"""Used where the run's own estimator is not one of them."""
ENTROPY, KL = "actor/entropy_per_token", "actor/kl_per_token"
"""The keys under which the workers' figures arrive in verl's log."""
IN_THE_LOSS = ((KL, "kl_loss"), (ENTROPY, "actor/entropy_loss"))
"""Each figure and verl's own one among the metrics of the actor's loss, which aggregates the divergence last and the
entropy right before it."""


class Aggregated:
    """What verl aggregates within one call of the actor's loss, or of the penalty on the rewards."""

    def __init__(self) -> None:
        self.means: list[Any] = []
        """The mean per token of each aggregated tensor. None where it could not be had."""
        self.divergence: Any = None
        """What the run takes for the divergence of each token."""
        self.kl: Any = None
        """An estimate of the KL divergence of each token: the same tensor, where the run's estimator gives one."""


def is_kl(estimator: Any) -> bool:
    """Whether an estimator that verl names is one of the KL divergence. A `+` behind the name changes the gradient
    only."""
    return str(estimator).removesuffix("+") in KL_ESTIMATORS


def install(core_algos: ModuleType) -> None:
    """Hooks the one function by which the workers' losses and the trainer's process aggregate."""
    after(core_algos, "agg_loss", _keep_mean)
    after(core_algos, "kl_penalty", _keep_divergence)


def install_loss(losses: ModuleType) -> None:
    """Hooks the actor's loss, in the workers."""
    around(losses, "ppo_loss", _add_to_metrics)


def install_penalty(ray_trainer: ModuleType) -> None:
    """Hooks the penalty on the rewards, in the trainer's process."""
    around(ray_trainer, "apply_kl_penalty", _keep_penalty)


@contextmanager
def _aggregated() -> Iterator[Aggregated]:
    """Collects what verl aggregates until the end of the block."""
    STATE.aggregated = aggregated = Aggregated()
    try:
        yield aggregated
    finally:
        STATE.aggregated = None


def _keep_mean(agg_loss: Call) -> None:
    if STATE.aggregated is not None:
        STATE.aggregated.means.append(_mean(agg_loss, STATE.aggregated))
    elif STATE.inbox.listening:  # of all that it aggregates, the trainer's process has the entropy only
        arguments = agg_loss.bound().arguments
        tensor, mask = arguments["loss_mat"], arguments["loss_mask"]
        is_mean = arguments["loss_agg_mode"] == TOKEN_MEAN
        mean = agg_loss.result.detach() if is_mean else masked_mean(tensor, mask)
        STATE.inbox.entropy.append((mean, mask.sum()))


@guarded
def _mean(agg_loss: Call, aggregated: Aggregated) -> Any:
    """The mean per token, computed by verl's own function."""
    arguments = agg_loss.bound().arguments
    tensor = arguments["loss_mat"]
    seen = aggregated.kl if tensor is aggregated.divergence else tensor
    return agg_loss.function(**{**arguments, "loss_mat": seen.detach().float(), "loss_agg_mode": TOKEN_MEAN})


def _keep_divergence(kl_penalty: Call) -> None:
    aggregated = STATE.aggregated
    if aggregated is None:
        return
    log_prob, reference, estimator = kl_penalty.bound().args
    aggregated.divergence, aggregated.kl = kl_penalty.result, kl_penalty.result
    if not is_kl(estimator):
        aggregated.kl = kl_penalty.function(log_prob.detach().float(), reference.float(), ESTIMATOR)


def _add_to_metrics(ppo_loss: Call) -> Iterator[None]:
    """Adds the means to the metrics of the loss. verl sums them over micro-batches and averages them over workers, as
    it does with its own."""
    if not is_active() or not _is_needed(ppo_loss.bound().arguments["config"]):
        return
    with _aggregated() as aggregated:
        yield
    if ppo_loss.error is None:
        _add(ppo_loss.result[1], list(aggregated.means))


def _is_needed(config: Any) -> bool:
    return bool(config.loss_agg_mode != TOKEN_MEAN or (config.use_kl_loss and not is_kl(config.kl_loss_type)))


def _add(metrics: dict[str, Any], means: list[Any]) -> None:
    """Adds our entries. None may be missing, because verl refuses an entry of which one worker has fewer values than
    the others."""
    for ours, theirs in IN_THE_LOSS:
        own: Any = metrics.get(theirs)
        if hasattr(own, "aggregation"):
            mean = means.pop() if means else None
            metrics[ours] = type(own)(value=math.nan if mean is None else mean, aggregation=own.aggregation)


def _keep_penalty(apply_kl_penalty: Call) -> Iterator[None]:
    if not STATE.inbox.listening:
        return
    with _aggregated() as aggregated:
        yield
    if apply_kl_penalty.error is None:
        mask = apply_kl_penalty.get(0, "data").batch["response_mask"]
        STATE.inbox.kl.append((masked_mean(aggregated.kl, mask), mask.sum()))


def masked_mean(tensor: Any, mask: Any) -> Any:
    """The mean of a tensor's values where the mask is set, whatever stands elsewhere. NaN if it is set nowhere. It is
    summed in float32, because a sum in bfloat16 would be off by up to 0.4 %, and without a gradient, which would keep
    all of the batch's activations.
    """
    import torch

    return torch.where(mask.bool(), tensor.detach(), 0.0).sum(dtype=torch.float32) / mask.sum()
