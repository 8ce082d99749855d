"""Notices the figures that a hook should have brought by the second step and did not bring. A recipe may have a
function of its own in place of the hooked one, and a node may lack the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.driver.vocabulary import Logged
from akka_otel_callbacks.verl.plugin import ROLLOUTS
from akka_otel_callbacks.verl.worker.clip_ratio import CLIPPED_HIGH

STEPS = 2
LOSSES_WITH_SIDES = (None, "vanilla")


class Sign(NamedTuple):
    """A key of verl's log whose figures come from the same place as some of ours.

    Attributes:
        key: verl's.
        came: whether our part came with a call that logs it.
        reason: what else must be so, if it did not.
        absent: the figures.
    """

    key: str
    came: Callable[[Logged, Sequence[Rollouts], Any], bool]
    reason: str
    absent: str


SIGNS = (
    Sign(
        "critic/score/mean",
        lambda logged, rollouts, config: bool(rollouts),
        "verl.trainer.ppo.metric_utils.compute_data_metrics was not called (has the recipe a function of its own?)",
        ROLLOUTS,
    ),
    Sign(
        "actor/pg_clipfrac",
        lambda logged, rollouts, config: (
            CLIPPED_HIGH in logged
            or get(config, "actor_rollout_ref.actor.policy_loss.loss_mode") not in LOSSES_WITH_SIDES
        ),
        "the workers' policy loss was not hooked (is akka-otel-callbacks installed on every node?)",
        "clip ratio by side",
    ),
)


class Unseen:
    """Looks at the steps of a run, and says once of each sign what is absent.

    Args:
        config: verl's configuration.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._missed = dict.fromkeys(SIGNS, 0)

    def check(self, logged: Logged, rollouts: Sequence[Rollouts]) -> None:
        for sign in list(self._missed):
            if sign.key not in logged:
                continue
            if sign.came(logged, rollouts, self._config):
                del self._missed[sign]
                continue
            self._missed[sign] += 1
            if self._missed[sign] == STEPS:
                del self._missed[sign]
                logger.warning("verl logs %s, but %s. Absent: %s", sign.key, sign.reason, sign.absent)
