"""The upper side of the clip ratio, which verl does not log, added to the policy loss's own metrics in the workers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap

CLIPPED_HIGH = "actor/pg_clipfrac_high"
"""The key that the entry arrives under in verl's log."""
LOSS = "compute_policy_loss_vanilla"
"""The one loss that clips each token's own probability ratio, under the loss modes `vanilla` and `bypass_mode`. The
others clip a sequence's ratio, or something else, and have no sides in this sense."""
MAX_LOG_RATIO = 20.0
"""verl's own bound on the log of the ratio."""


def install(core_algos: ModuleType) -> None:
    """verl averages what a loss returns as metrics over micro-batches and workers. One more entry arrives in the log
    as a mean of the same weights as `actor/pg_clipfrac`.

    Raises:
        AttributeError: verl up to 0.5, where that loss returns no metrics to add to.
    """
    original = getattr(core_algos, LOSS)
    wrap(core_algos, LOSS, lambda loss: _with_upper_side(loss, core_algos))
    registry: dict[str, Any] = core_algos.POLICY_LOSS_REGISTRY
    registry.update({name: getattr(core_algos, LOSS) for name, loss in registry.items() if loss is original})


def _with_upper_side(loss: Callable[..., Any], core_algos: ModuleType) -> Callable[..., Any]:
    signature = inspect.signature(loss)

    @guarded
    def measured(*args: Any, **kwargs: Any) -> Any:
        return share_above_bound(core_algos.verl_F.masked_mean, signature.bind(*args, **kwargs).arguments)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not is_active():
            return loss(*args, **kwargs)
        # Queued on the device before the loss, whose own metrics wait for it: reading the share costs no further wait.
        share = measured(*args, **kwargs)
        result = loss(*args, **kwargs)
        _add(result, share)
        return result

    return wrapped


def share_above_bound(masked_mean: Callable[[Any, Any], Any], arguments: Mapping[str, Any]) -> Any:
    """The share of tokens whose ratio exceeds the upper bound while their advantage is positive: a scalar tensor.

    Args:
        masked_mean: verl's mean of a tensor over a mask, which also gives `actor/pg_clipfrac`.
        arguments: of the loss; its tensors have the shape [sequences, tokens].
    """
    import torch

    config, advantages = arguments["config"], arguments["advantages"]
    high = config.clip_ratio if config.clip_ratio_high is None else config.clip_ratio_high
    with torch.no_grad():
        log_ratio = arguments["log_prob"].detach() - arguments["old_log_prob"]
        ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        is_clipped = (advantages * ratio > advantages * ratio.clamp(max=1 + high)) & (advantages > 0)
        return masked_mean(is_clipped.float(), arguments["response_mask"])


@guarded
def _add(result: Any, share: Any) -> None:
    metrics = result[1]
    if CLIPPED_HIGH in metrics:
        return
    # verl refuses to average an entry that one worker has fewer values of than the others: it must never be missing.
    metrics[CLIPPED_HIGH] = math.nan
    if share is not None:
        metrics[CLIPPED_HIGH] = share.item()
