"""What the trainer's process has seen of a step, until a log call takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akka_otel_callbacks.verl.driver.rollouts import Rollouts


PerToken = tuple[Any, Any]
"""A mean per token, and the number of tokens that it is of. Both are tensors without a dimension."""


class Inbox:
    """What was seen is kept only while a run listens."""

    def __init__(self) -> None:
        self.listening = False
        self.described: Rollouts | None = None
        """What is known beside the batch that verl is about to compute its figures of."""
        self.entropy: list[PerToken] = []
        """The policy's entropy in each part of that batch that verl took it of."""
        self.kl: list[PerToken] = []
        """Likewise the divergence that verl took off the rewards."""
        self._kept: list[Rollouts] = []

    def keep(self, rollouts: Rollouts) -> None:
        self._kept.append(rollouts)

    def take(self, up_to_step: float | None) -> list[Rollouts]:
        """The rollouts of all steps up to that one, and those whose step is unknown. With None it is the rollouts of
        all steps.

        fully_async logs a step when the figures of the next one's batch have been computed already. That batch stays.
        """
        early: list[Rollouts] = []
        later: list[Rollouts] = []
        for kept in self._kept:
            is_later = up_to_step is not None and kept.step is not None and kept.step > up_to_step
            (later if is_later else early).append(kept)
        self._kept = later
        return early

    def take_means(self) -> tuple[list[PerToken], list[PerToken]]:
        """Entropy and divergence of the batch that verl computed its figures of just now."""
        entropy, kl = self.entropy, self.kl
        self.entropy, self.kl = [], []
        return entropy, kl
