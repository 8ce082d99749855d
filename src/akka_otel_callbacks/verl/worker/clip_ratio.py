"""The upper side of the clip ratio, which verl does not log, added to the policy loss's own metrics in the workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.patching.calls import Call, around
from akka_otel_callbacks.common.run.handed_on import is_active

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
    around(core_algos, LOSS, _add_upper_side)
    registry: dict[str, Any] = core_algos.POLICY_LOSS_REGISTRY
    registry.update({name: getattr(core_algos, LOSS) for name, loss in registry.items() if loss is original})


def _add_upper_side(loss: Call) -> Iterator[None]:
    if not is_active():
        return
    # Queued on the device before the loss, whose own metrics wait for it: reading the share costs no further wait.
    share = _measured(loss)
    yield
    if loss.error is None:
        _add(loss.result[1], share)


@guarded
def _measured(loss: Call) -> Any:
    from verl.utils.torch_functional import masked_mean

    return share_above_bound(masked_mean, loss.bound().arguments)


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


def _add(metrics: dict[str, Any], share: Any) -> None:
    if CLIPPED_HIGH in metrics:
        return
    # verl refuses to average an entry that one worker has fewer values of than the others: it must never be missing.
    metrics[CLIPPED_HIGH] = math.nan
    if share is not None:
        metrics[CLIPPED_HIGH] = share.item()
