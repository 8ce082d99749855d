"""Entropy and KL divergence in nats per token, seen where verl aggregates them.

verl aggregates both as it does the loss, by the run's `loss_agg_mode`. Only the mode `token-mean` gives a figure per
token: `seq-mean-token-sum` gives one per sequence, others one of a scale of their own. And of the estimators that a run
can choose for the divergence, some do not estimate the KL divergence.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.driver.inbox import INBOX, PerToken
from akka_otel_callbacks.verl.patching.importhook import wrap

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


class Watch:
    """What verl aggregates within one call of the actor's loss, or of the penalty on the rewards."""

    def __init__(self) -> None:
        self.means: list[Any] = []
        """The mean per token of each aggregated tensor; None where it could not be had."""
        self.divergence: Any = None
        """What the run takes for the divergence of each token."""
        self.kl: Any = None
        """An estimate of the KL divergence of each token: the same tensor, where the run's estimator gives one."""


_watch: Watch | None = None


def is_kl(estimator: Any) -> bool:
    """Whether verl's name of an estimator is one of the KL divergence. A `+` behind it changes its gradient only."""
    return str(estimator).removesuffix("+") in KL_ESTIMATORS


def install(core_algos: ModuleType) -> None:
    """The workers' losses and the trainer's process aggregate by this one function."""
    wrap(core_algos, "agg_loss", _watched_mean)
    wrap(core_algos, "kl_penalty", _watched_divergence)


def install_loss(losses: ModuleType) -> None:
    """The actor's loss, in the workers."""
    wrap(losses, "ppo_loss", _completed)


def install_penalty(ray_trainer: ModuleType) -> None:
    """The penalty on the rewards, in the trainer's process."""
    wrap(ray_trainer, "apply_kl_penalty", _kept)


@contextmanager
def _watching() -> Iterator[Watch]:
    global _watch
    _watch = watch = Watch()
    try:
        yield watch
    finally:
        _watch = None


def _watched_mean(agg_loss: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(agg_loss)

    @guarded
    def mean(watch: Watch, args: Any, kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        tensor = arguments["loss_mat"]
        seen = watch.kl if tensor is watch.divergence else tensor
        return agg_loss(**{**arguments, "loss_mat": seen.detach().float(), "loss_agg_mode": TOKEN_MEAN})

    @guarded
    def keep_entropy(args: Any, kwargs: Any, aggregated: Any) -> None:
        arguments = signature.bind(*args, **kwargs).arguments
        tensor, mask = arguments["loss_mat"], arguments["loss_mask"]
        is_mean = arguments["loss_agg_mode"] == TOKEN_MEAN
        INBOX.entropy.append(PerToken(aggregated.detach() if is_mean else masked_mean(tensor, mask), mask.sum()))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        aggregated = agg_loss(*args, **kwargs)
        if _watch is not None:
            _watch.means.append(mean(_watch, args, kwargs))
        elif INBOX.listening:  # of all that it aggregates, the trainer's process has the entropy only
            keep_entropy(args, kwargs, aggregated)
        return aggregated

    return wrapped


def _watched_divergence(kl_penalty: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(kl_penalty)

    @guarded
    def estimated(watch: Watch, args: Any, kwargs: Any, divergence: Any) -> None:
        log_prob, reference, estimator = signature.bind(*args, **kwargs).args
        watch.divergence, watch.kl = divergence, divergence
        if not is_kl(estimator):
            watch.kl = kl_penalty(log_prob.detach().float(), reference.float(), ESTIMATOR)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        divergence = kl_penalty(*args, **kwargs)
        if _watch is not None:
            estimated(_watch, args, kwargs, divergence)
        return divergence

    return wrapped


def _completed(ppo_loss: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(ppo_loss)

    @guarded
    def is_needed(args: Any, kwargs: Any) -> bool:
        config = signature.bind(*args, **kwargs).arguments["config"]
        return config.loss_agg_mode != TOKEN_MEAN or (config.use_kl_loss and not is_kl(config.kl_loss_type))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not is_active() or not is_needed(args, kwargs):
            return ppo_loss(*args, **kwargs)
        with _watching() as watch:
            result = ppo_loss(*args, **kwargs)
        _add(result, watch)
        return result

    return wrapped


@guarded
def _add(result: Any, watch: Watch) -> None:
    """Adds to the loss's metrics what verl then sums up over micro-batches and averages over workers, as its own. verl
    refuses an entry that one worker has fewer values of than the others: it must never be missing."""
    metrics, means = result[1], list(watch.means)
    for ours, theirs in IN_THE_LOSS:
        own = metrics.get(theirs)
        if hasattr(own, "aggregation"):
            mean = means.pop() if means else None
            metrics[ours] = type(own)(value=math.nan if mean is None else mean, aggregation=own.aggregation)


def _kept(apply_kl_penalty: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(data: Any, *args: Any, **kwargs: Any) -> Any:
        if not INBOX.listening:
            return apply_kl_penalty(data, *args, **kwargs)
        with _watching() as watch:
            result = apply_kl_penalty(data, *args, **kwargs)
        _keep_kl(data, watch)
        return result

    return wrapped


@guarded
def _keep_kl(data: Any, watch: Watch) -> None:
    mask = data.batch["response_mask"]
    INBOX.kl.append(PerToken(masked_mean(watch.kl, mask), mask.sum()))


def masked_mean(tensor: Any, mask: Any) -> Any:
    """The mean of a tensor where the mask is set, whatever stands elsewhere. NaN of nothing.

    A sum in bfloat16 would be off by up to 0.4 %. A gradient would keep all of the batch's activations.
    """
    import torch

    return torch.where(mask.bool(), tensor.detach(), 0.0).sum(dtype=torch.float32) / mask.sum()
