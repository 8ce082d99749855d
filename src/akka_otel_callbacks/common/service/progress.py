"""The phase that a run is in, and the phases that can follow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from akka_otel_callbacks.common.service.checks import known, named, seconds
from akka_otel_callbacks.common.service.phases import check_order, check_start
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import RunPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Where a run stands. It holds what a service keeps of the run in its own state, so that a restarted service, or
    another instance of it, can go on: each field is a string or a number, and fits in a column.

    Attributes:
        project: the training project that the run belongs to.
        phase: the run's phase, one of `RunPhase`.
        began_s: when the run began, in Unix seconds.
        entered_s: when it entered the phase, in Unix seconds.
        before_cleaning: while and after it cleans up, the phase before that, which is the one that it failed in if it
            fails. None before, and where it is not known.

    Raises:
        ValueError: a phase is unknown, a time is not a finite number from 0, or the project has no name.
    """

    project: str
    phase: str
    began_s: float
    entered_s: float
    before_cleaning: str | None = None

    def __post_init__(self) -> None:
        named("project", self.project)
        known(names.ATTR_RUN_PHASE, self.phase)
        seconds("began_s", self.began_s)
        seconds("entered_s", self.entered_s)
        if self.before_cleaning is not None:
            known(names.ATTR_RUN_PHASE, self.before_cleaning)

    @classmethod
    def start(cls, project: str, phase: str, at_s: float) -> RunProgress:
        """A run that begins. Raises ValueError for an unknown phase, and ImpossibleOrder for one that none begins with.

        Args:
            project: the training project that the run belongs to.
            phase: the first phase.
            at_s: when that is, in Unix seconds.
        """
        check_start(known(names.ATTR_RUN_PHASE, phase))
        return cls(project=project, phase=phase, began_s=at_s, entered_s=at_s)

    def entering(self, phase: str, at_s: float) -> RunProgress:
        """The same run in its next phase. Raises ValueError for an unknown phase, and ImpossibleOrder for one that
        cannot follow.

        Args:
            phase: the next phase.
            at_s: when the run enters it, in Unix seconds.
        """
        check_order(self.phase, known(names.ATTR_RUN_PHASE, phase), self.before_cleaning)
        before = self.phase if phase == RunPhase.CLEANING_UP else self.before_cleaning
        return replace(self, phase=phase, entered_s=at_s, before_cleaning=before)

    @property
    def worked_in(self) -> str:
        """The phase that a failure at this moment belongs to. A run cleans up because of a failure, and cleaning up is
        mostly not what failed."""
        return self.before_cleaning or self.phase
