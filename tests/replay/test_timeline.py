"""The times of a past run's steps: those of the log, or assumed ones that end when the log was last changed."""

from __future__ import annotations

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, Step
from akka_otel_callbacks.replay.log import Row
from akka_otel_callbacks.replay.timeline import timeline

SECOND = 10**9
ENDED = 1_000 * SECOND


def logged(number: int, step: Step, time_s: float | None = None) -> tuple[Row, Step]:
    return Row(number, {}, None if time_s is None else int(time_s * SECOND)), step


def test_the_log_s_times_and_what_amends_a_step_without_one() -> None:
    found = timeline(
        [
            logged(1, RLStep(number=1, duration_s=4.0), 10),
            logged(1, RLStep(eval_reward=0.5)),
            logged(2, RLStep(number=2, duration_s=5.0), 20),
            logged(2, RLStep(eval_reward=0.6), 23),
        ],
        ENDED,
    )
    assert [timed.time_ns / SECOND for timed in found.timed] == [10, 10, 20, 23]
    assert (found.start_ns, found.source) == (6 * SECOND, names.ReplayTimes.LOGGED)


def test_each_step_lies_as_far_behind_the_one_before_as_it_took() -> None:
    """Step 5 stands for steps 4 and 5, of which only the last one's time is known, and step 6 has its phases alone."""
    found = timeline(
        [
            logged(3, RLStep(number=3, duration_s=4.0), 10),
            logged(5, RLStep(number=5, duration_s=9.0)),
            logged(5, RLStep(eval_reward=0.5, duration_s=7.0)),
            logged(6, RLStep(number=6, timing_s={"gen": 2.0, "reward": 1.0})),
            logged(7, RLStep(number=7)),
        ],
        ENDED,
    )
    assert [timed.time_ns // SECOND for timed in found.timed] == [994, 996, 996, 999, 1000]
    assert (found.start_ns, found.source) == (990 * SECOND, names.ReplayTimes.ASSUMED)


def test_steps_that_would_have_begun_before_1970() -> None:
    found = timeline([logged(number, RLStep(number=number, duration_s=600.0)) for number in (1, 2)], ENDED)
    assert [ENDED - timed.time_ns for timed in found.timed] == [10**6, 0]
