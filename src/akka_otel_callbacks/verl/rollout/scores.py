"""Carries what is known of the grading with a rollout's score, from the process that scores to the trainer's."""

from __future__ import annotations

from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.rollout.fields import GRADED

INFO = "reward_extra_info"
"""verl's name for what goes with a score."""


class Told(dict[str, Any]):
    """verl's dict of a score, or of what goes with it. An attribute, which verl does not see, holds the calls."""

    calls: str


def take_out(info: Any) -> str | None:
    """The calls that came with a score's extra information. None if there are none."""
    return info.calls if isinstance(info, Told) else None


@guarded
def attach(outputs: Any) -> None:
    """Puts the calls of a completion among its own extra fields, in the process of its agent loop."""
    last = outputs[-1] if isinstance(outputs, list) else outputs
    calls = take_out(last.extra_fields.get(INFO))
    if calls is not None:
        last.extra_fields[INFO] = dict(last.extra_fields[INFO])
        last.extra_fields[GRADED] = calls


@guarded
def hide(scores: Any) -> None:
    """Takes the calls out of the list of terms. A reward model's batch has them as a column."""
    keys = scores.meta_info.get("reward_extra_keys")
    if keys and GRADED in keys:
        scores.meta_info["reward_extra_keys"] = [key for key in keys if key != GRADED]
