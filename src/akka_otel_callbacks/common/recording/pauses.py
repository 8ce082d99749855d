"""What a job does while it makes no step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

EVALUATION: Final = names.JobPauseCause.EVALUATING
CHECKPOINT: Final = names.JobPauseCause.CHECKPOINTING


class Pauses:
    """The points of `job.steps.paused`: 1 for what is under way, else 0. Both are published from the beginning, so that
    a query sees the end of a pause as well.

    The training thread begins and ends them. A pause within one of its kind ends with the outer one.
    """

    metrics = (names.JOB_STEPS_PAUSED,)

    def __init__(self) -> None:
        self._under_way: dict[str, int] = {EVALUATION: 0, CHECKPOINT: 0}

    def begin(self, cause: str) -> None:
        self._under_way[cause] += 1

    def end(self, cause: str) -> None:
        self._under_way[cause] -= 1

    def points(self, metric: Metric = names.JOB_STEPS_PAUSED) -> Iterable[Point]:
        return [(int(count > 0), {names.ATTR_JOB_PAUSE_CAUSE.name: cause}) for cause, count in self._under_way.items()]
