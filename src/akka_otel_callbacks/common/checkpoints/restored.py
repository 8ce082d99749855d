"""What a job says of the checkpoint that it continues from."""

from __future__ import annotations

from collections.abc import Mapping

from akka_otel_callbacks.common.checkpoints.description import Description
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.vocabulary.names import CheckpointRestoreMode
from akka_otel_callbacks.common.vocabulary.points import AttributeValue


def restored(attempt: Attempt, saver: Attempt | None, step: int | None) -> Mapping[str, AttributeValue]:
    """The attributes of the job's span. What is not known has none.

    Args:
        attempt: the job's.
        saver: the attempt that saved the checkpoint.
        step: the engine's own number of the step that the checkpoint was saved after.
    """
    if saver is None:
        return Description(source_engine_step=step).attributes()
    is_own = saver.run_id == attempt.run_id
    return Description(
        restore_mode=CheckpointRestoreMode.RESUME if is_own else CheckpointRestoreMode.BRANCH,
        source_run_id=saver.run_id,
        source_attempt=saver.number,
        source_engine_step=step,
    ).attributes()
