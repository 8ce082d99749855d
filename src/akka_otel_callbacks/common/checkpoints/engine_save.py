"""A checkpoint that an engine saves by itself, which is how a snapshot is first staged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from akka_otel_callbacks.common.checkpoints.attempt import Attempt, Reason
from akka_otel_callbacks.common.checkpoints.description import Description
from akka_otel_callbacks.common.checkpoints.operation import is_within
from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from akka_otel_callbacks.common.telemetry import Telemetry

STAGE = names.CheckpointOperation.STAGE


def saved(
    telemetry: Telemetry,
    seconds: float,
    *,
    artifact_kind: str | None = None,
    error: BaseException | None = None,
) -> None:
    """Publishes a save that ended just now. One within a `stage` of the user's own is a part of that.

    Args:
        telemetry: the training's.
        seconds: how long the save took.
        artifact_kind: what it left. None for weights that are neither an adapter's nor a state to resume from.
        error: what it failed with.
    """
    if is_within(STAGE):
        return
    end_ns = now_ns()
    Attempt(
        operation=STAGE,
        description=Description(artifact_kind=artifact_kind),
        start_ns=end_ns - int(seconds * 1e9),
        end_ns=end_ns,
        failure_reason=None if error is None else Reason.INTERNAL,
        error=None if error is None else type(error),
    ).publish(telemetry)
