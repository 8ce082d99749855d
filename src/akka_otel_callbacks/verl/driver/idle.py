"""How long the trainer and the rollout servers waited for each other, where they run on devices of their own."""

from __future__ import annotations

from typing import Any

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.vocabulary import Row

TRAINER, ROLLOUT = names.RlRole.TRAINER, names.RlRole.ROLLOUT
ONE_STEP_OFF_KEY = "timing_s/generate_async"
"""A key that only the rows of this trainer have."""


def idle(row: Row, config: Any) -> dict[str, float]:
    """Idle share of the step by role. Empty for trainers whose devices do both in turns: there is no waiting then.

    * fully_async logs both shares.
    * one_step_off: the trainer waits for the generation of the next batch within `gen`. Of the servers nothing is
      known: `generate_async` is timed on the event loop that the update blocks, so that it spans the update.
    * separate_async (v1): the trainer waits for samples within `gen`; of the servers nothing is known.
    """
    step, waited = row.get("timing_s/step"), row.get("timing_s/gen")
    trainer, rollout = row.get("fully_async/trainer/idle_ratio"), row.get("fully_async/rollouter/idle_ratio")
    is_separate = ONE_STEP_OFF_KEY in row or get(config, "trainer.v1.trainer_mode") == "separate_async"
    if step and is_separate and waited is not None:
        trainer = waited / step
    return {
        role: min(max(share, 0.0), 1.0) for role, share in ((TRAINER, trainer), (ROLLOUT, rollout)) if share is not None
    }
