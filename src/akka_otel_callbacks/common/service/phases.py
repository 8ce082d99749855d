"""The phases of a run, and which may follow which.

A phase that a run does not need is skipped: a run without a grader deploys none, and a quick job may have ended when
the service looks at it again. What is refused is an order that no run can have had: the figures would tell what did
not happen.
"""

from __future__ import annotations

from collections.abc import Mapping

from akka_otel_callbacks.common.vocabulary.names import RunOutcome, RunPhase

ENDS: Mapping[str, str] = {
    RunPhase.COMPLETED: RunOutcome.COMPLETED,
    RunPhase.FAILED: RunOutcome.FAILED,
    RunPhase.CANCELLED: RunOutcome.CANCELLED,
}
"""The phases that a run does not leave, and the outcome that each of them is."""

SETUP = (
    RunPhase.RESOLVING_DATASET,
    RunPhase.PREPARING_MODEL,
    RunPhase.DEPLOYING_GRADER,
    RunPhase.AWAITING_GRADER,
    RunPhase.AWAITING_DEVICES,
)
"""Before there is a job, in their order."""
JOB = (RunPhase.SUBMITTING, RunPhase.QUEUED, RunPhase.PREPARING, RunPhase.TRAINING)
"""While there is a job, in their order."""
STOPPED = {RunPhase.CLEANING_UP, RunPhase.FAILED, RunPhase.CANCELLED}
"""What may follow at any time."""
DONE = {RunPhase.REGISTERING, RunPhase.COMPLETED}
"""What may follow a job."""

STARTS = frozenset({*SETUP, RunPhase.SUBMITTING})
"""The phases that a run may begin with, and that a paused one may resume with: it has no job."""

NEXT: Mapping[str, frozenset[str]] = {
    **{phase: frozenset({*SETUP[place + 1 :], *JOB, *STOPPED}) for place, phase in enumerate(SETUP)},
    # The cluster or the service may start a job anew, so it can go back.
    **{
        phase: frozenset({RunPhase.AWAITING_DEVICES, *JOB, RunPhase.PAUSING, *DONE, *STOPPED} - {phase})
        for phase in JOB
    },
    # A pause that fails leaves the job where it was, and a job may complete while it is being paused.
    RunPhase.PAUSING: frozenset({*JOB, RunPhase.PAUSED, *DONE, *STOPPED}),
    RunPhase.PAUSED: STARTS | STOPPED,
    RunPhase.REGISTERING: frozenset({RunPhase.COMPLETED, *STOPPED}),
    RunPhase.CLEANING_UP: frozenset(ENDS),
    **dict.fromkeys(ENDS, frozenset()),
}
"""The phases that may follow each phase."""


class ImpossibleOrder(ValueError):
    """A run cannot enter this phase from where it is."""


def check_start(phase: str) -> None:
    """Raises ImpossibleOrder where no run begins with this phase."""
    if phase not in STARTS:
        raise ImpossibleOrder(f"no run begins with {phase}: it begins with {_listed(STARTS)}")


def check_order(phase: str, following: str, before_cleaning: str | None = None) -> None:
    """Raises ImpossibleOrder where a run cannot go from one phase to the other.

    Args:
        phase: where the run is.
        following: where it is to go.
        before_cleaning: in CLEANING_UP, the phase before it, where that is known. A run that never had a job cannot
            complete because it cleaned up.
    """
    possible = NEXT[phase]
    if phase == RunPhase.CLEANING_UP and before_cleaning is not None:
        possible &= NEXT[before_cleaning]
    if following in possible:
        return
    if phase in ENDS:
        raise ImpossibleOrder(f"the run has ended ({phase}) and cannot enter {following}: a further one is a new run")
    if following == phase:
        raise ImpossibleOrder(f"the run is in {phase} already; a transition is counted once")
    after = f"{phase} after {before_cleaning}" if before_cleaning is not None else phase
    raise ImpossibleOrder(f"a run cannot go from {after} to {following}: {_listed(possible)} can follow")


def _listed(phases: frozenset[str]) -> str:
    return ", ".join(phase for phase in NEXT if phase in phases)
