"""Model FLOPs utilization: the FLOPs of an update against what its devices could have done in that time."""

from __future__ import annotations

import itertools

from akka_otel_callbacks.common.flops.module import MatmulParameters
from akka_otel_callbacks.common.log import logger

_impossible = itertools.count()


def train_flops(parameters: MatmulParameters, tokens: int, scored_tokens: int | None = None) -> int:
    """FLOPs of a full forward and backward pass: 6 per parameter and token, also where LoRA needs fewer.

    Args:
        parameters: what one token meets, from `matmul_parameters`.
        tokens: token positions that the update ran over, padding included.
        scored_tokens: those of them whose logits the loss needs, all by default. The others do not meet the head.
    """
    return 6 * (parameters.layers * tokens + parameters.head * (tokens if scored_tokens is None else scored_tokens))


def mfu(flops: float, seconds: float, peak_flops: float) -> float | None:
    """Model FLOPs utilization, a fraction.

    Args:
        flops: of the update, from `train_flops`.
        seconds: of the update, without generation and scoring.
        peak_flops: FLOP/s of the devices that ran it, all together, from `dense_bf16_peak`.

    Returns:
        The fraction. None where an argument is not above 0, and, with one log line per process, where the fraction is
        above 1, which no device can do: the peak, the time or the count is wrong then.
    """
    if not (flops > 0 and seconds > 0 and peak_flops > 0):
        return None
    fraction = flops / seconds / peak_flops
    if fraction <= 1:
        return fraction
    if next(_impossible) == 0:
        logger.warning(
            "MFU of %.3g is impossible and not published: %.4g FLOPs in %.4g s against a peak of %.4g FLOP/s. Is it "
            "this device's peak (peak_flops= sets another)? Further impossible values are dropped without a line.",
            fraction,
            flops,
            seconds,
            peak_flops,
        )
    return None
