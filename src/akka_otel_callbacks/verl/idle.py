"""How long the trainer and the rollout servers waited for each other, where they run on devices of their own."""

from __future__ import annotations

from typing import Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.verl.settings import get
from akka_otel_callbacks.verl.vocabulary import Row

TRAINER, ROLLOUT = names.RlRole.TRAINER, names.RlRole.ROLLOUT


def idle(row: Row, config: Any) -> dict[str, float]:
    """Idle share of the step by role. Empty for trainers whose devices do both in turns: there is no waiting then.

    * fully_async logs both shares.
    * one_step_off: the trainer waits for the generation of the next batch within `gen`; the servers are busy for
      `generate_async`.
    * separate_async (v1): the trainer waits for samples within `gen`; of the servers nothing is known.
    """
    step = number(row.get("timing_s/step"))
    waited, generated = number(row.get("timing_s/gen")), number(row.get("timing_s/generate_async"))
    trainer = number(row.get("fully_async/trainer/idle_ratio"))
    rollout = number(row.get("fully_async/rollouter/idle_ratio"))
    if step:
        if generated is not None:
            rollout = 1 - generated / step
        is_separate = generated is not None or get(config, "trainer.v1.trainer_mode") == "separate_async"
        if is_separate and waited is not None:
            trainer = waited / step
    return {
        role: min(max(share, 0.0), 1.0) for role, share in ((TRAINER, trainer), (ROLLOUT, rollout)) if share is not None
    }
