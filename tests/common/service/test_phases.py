"""The order of a run's phases: lives that runs have, and orders that none can have had."""

from __future__ import annotations

import itertools

import pytest

from akka_otel_callbacks.common.service.phases import ENDS, NEXT, STARTS, ImpossibleOrder
from akka_otel_callbacks.common.service.progress import RunProgress
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import RunPhase

FULL = (
    "RESOLVING_DATASET PREPARING_MODEL DEPLOYING_GRADER AWAITING_GRADER AWAITING_DEVICES SUBMITTING QUEUED PREPARING "
    "TRAINING REGISTERING CLEANING_UP COMPLETED"
)
POSSIBLE = {
    "every phase": FULL,
    "no grader": "RESOLVING_DATASET PREPARING_MODEL AWAITING_DEVICES SUBMITTING PREPARING TRAINING COMPLETED",
    "paused twice": "SUBMITTING TRAINING PAUSING PAUSED AWAITING_DEVICES SUBMITTING QUEUED TRAINING PAUSING PAUSED "
    "PREPARING_MODEL SUBMITTING PREPARING TRAINING REGISTERING COMPLETED",
    "a pause that fails": "SUBMITTING TRAINING PAUSING TRAINING REGISTERING COMPLETED",
    "it completes while it is paused": "SUBMITTING TRAINING PAUSING REGISTERING CLEANING_UP COMPLETED",
    "a job that starts anew": "SUBMITTING QUEUED PREPARING TRAINING PREPARING TRAINING SUBMITTING TRAINING FAILED",
    "a job that was over when it was looked at": "AWAITING_DEVICES SUBMITTING QUEUED REGISTERING COMPLETED",
    "it fails at once": "RESOLVING_DATASET FAILED",
    "cancelled while paused": "SUBMITTING PAUSING PAUSED CANCELLED",
    "cancelled before it had a job": "RESOLVING_DATASET AWAITING_DEVICES CLEANING_UP CANCELLED",
}
IMPOSSIBLE = {
    "it registered what never trained": ("RESOLVING_DATASET", "REGISTERING"),
    "back to the dataset": ("RESOLVING_DATASET SUBMITTING TRAINING", "RESOLVING_DATASET"),
    "back to the grader": ("DEPLOYING_GRADER AWAITING_GRADER", "DEPLOYING_GRADER"),
    "paused without pausing": ("SUBMITTING TRAINING", "PAUSED"),
    "pausing without a job": ("AWAITING_DEVICES", "PAUSING"),
    "a paused run trains without a job": ("SUBMITTING PAUSING PAUSED", "TRAINING"),
    "a paused run completes": ("SUBMITTING PAUSING PAUSED", "COMPLETED"),
    "it completes without a job": ("RESOLVING_DATASET AWAITING_DEVICES", "COMPLETED"),
    "it completes without a job, and cleans up": ("RESOLVING_DATASET AWAITING_DEVICES CLEANING_UP", "COMPLETED"),
    "a paused run completes, and cleans up": ("SUBMITTING PAUSING PAUSED CLEANING_UP", "COMPLETED"),
    "it trains after it registered": ("SUBMITTING TRAINING REGISTERING", "TRAINING"),
    "it trains after it cleaned up": ("SUBMITTING TRAINING CLEANING_UP", "TRAINING"),
    "the same phase again": ("SUBMITTING TRAINING", "TRAINING"),
    "a run that has ended": ("SUBMITTING TRAINING COMPLETED", "TRAINING"),
    "a run that has ended otherwise": ("SUBMITTING TRAINING FAILED", "CANCELLED"),
}


def live(phases: str) -> RunProgress:
    first, *others = phases.split()
    run = RunProgress.start("triage", first, 1.0)
    for at_s, phase in enumerate(others, 2):
        run = run.entering(phase, float(at_s))
    return run


@pytest.mark.parametrize("phases", POSSIBLE.values(), ids=POSSIBLE)
def test_a_life_that_runs_have(phases: str) -> None:
    run = live(phases)
    assert (run.phase, run.began_s, run.entered_s) == (phases.split()[-1], 1.0, len(phases.split()))


@pytest.mark.parametrize(("phases", "following"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_order_that_no_run_can_have_had(phases: str, following: str) -> None:
    run = live(phases)
    with pytest.raises(ImpossibleOrder, match=following):
        run.entering(following, 9.0)


def test_the_error_says_what_can_follow() -> None:
    with pytest.raises(ImpossibleOrder, match=r"from PAUSING to AWAITING_DEVICES: SUBMITTING, QUEUED, .* can follow"):
        live("SUBMITTING PAUSING").entering(RunPhase.AWAITING_DEVICES, 3.0)
    with pytest.raises(ImpossibleOrder, match="from CLEANING_UP after PAUSED to COMPLETED: FAILED, CANCELLED can"):
        live("SUBMITTING PAUSING PAUSED CLEANING_UP").entering(RunPhase.COMPLETED, 5.0)
    with pytest.raises(ImpossibleOrder, match="has ended"):
        live("SUBMITTING FAILED").entering(RunPhase.SUBMITTING, 3.0)
    with pytest.raises(ImpossibleOrder, match="already"):
        live("SUBMITTING").entering(RunPhase.SUBMITTING, 3.0)


def test_a_service_that_does_not_know_what_was_before_the_cleaning_may_end_it_in_any_way() -> None:
    run = RunProgress(project="triage", phase=RunPhase.CLEANING_UP, began_s=1.0, entered_s=2.0)
    assert {run.entering(end, 3.0).phase for end in ENDS} == {*ENDS}


@pytest.mark.parametrize("phase", sorted(set(names.ATTR_RUN_PHASE.values) - STARTS))
def test_a_run_that_begins_in_the_middle_is_none(phase: str) -> None:
    with pytest.raises(ImpossibleOrder, match="begins with RESOLVING_DATASET"):
        RunProgress.start("triage", phase, 1.0)


def test_every_phase_of_the_registry_has_its_place() -> None:
    assert set(NEXT) == set(names.ATTR_RUN_PHASE.values)
    assert set(ENDS.values()) == set(names.ATTR_RUN_OUTCOME.values)
    assert set().union(*NEXT.values()) | STARTS == set(names.ATTR_RUN_PHASE.values)
    for phase, following in NEXT.items():
        assert phase not in following
        if phase in ENDS:
            assert following == set()
        else:
            assert {RunPhase.FAILED, RunPhase.CANCELLED} <= following


def test_the_path_to_completion_goes_through_a_job() -> None:
    """Whatever the order, from a start: without a job nothing is registered and nothing completes."""
    job = {RunPhase.SUBMITTING, RunPhase.QUEUED, RunPhase.PREPARING, RunPhase.TRAINING}
    reached, waiting = set(), [RunProgress.start("p", phase, 1.0) for phase in STARTS - job]
    while waiting:
        run = waiting.pop()
        if (run.phase, run.before_cleaning) in reached:
            continue
        reached.add((run.phase, run.before_cleaning))
        for phase in NEXT[run.phase] - job:
            try:
                waiting.append(run.entering(phase, 1.0))
            except ImpossibleOrder:
                continue
    phases = {phase for phase, _ in reached}
    assert {RunPhase.FAILED, RunPhase.CANCELLED, RunPhase.CLEANING_UP} <= phases
    assert phases.isdisjoint({RunPhase.COMPLETED, RunPhase.REGISTERING, RunPhase.PAUSING, RunPhase.PAUSED})


def test_forward_through_the_full_life_any_phase_but_the_job_s_may_be_skipped() -> None:
    life = FULL.split()
    for earlier, later in itertools.combinations(life, 2):
        before_the_job, after_it = life.index("SUBMITTING"), life.index("REGISTERING")
        skips_the_job = life.index(earlier) < before_the_job and later in ("REGISTERING", "COMPLETED")
        if later == "CLEANING_UP" or life.index(later) < after_it or not skips_the_job:
            assert later in NEXT[earlier], (earlier, later)
        else:
            assert later not in NEXT[earlier], (earlier, later)
