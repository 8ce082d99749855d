"""The figures of tools, from what an engine counted: one definition for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from akka_otel_callbacks.common.numbers import mean
from akka_otel_callbacks.common.vocabulary.step import RLStep


def set_tools(step: RLStep, calls: Sequence[float], failed: Sequence[float] | None) -> None:
    """Sets the calls of a rollout in the mean, and the share of all calls that failed.

    Args:
        step: set in place.
        calls: of each rollout that had tools, or in the mean of each batch of as many rollouts. Without any, both
            figures are absent.
        failed: how many of them failed. None where that is not known. Without any call, there is no share.
    """
    step.tool_calls, total = mean(calls), sum(calls)
    step.tool_failure_ratio = sum(failed) / total if failed is not None and total else None
