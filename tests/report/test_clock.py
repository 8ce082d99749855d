"""Which step it was at any time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.report.clock import Clock

TIMES = st.lists(st.integers(1, 10**6), min_size=1, max_size=50, unique=True).map(sorted)


@given(TIMES, st.integers(0, 2 * 10**6))
def test_a_step_is_the_newest_one_that_was_complete(times: list[int], time: int) -> None:
    clock = Clock(0, times, [*range(1, len(times) + 1)], end=10**9)
    assert clock.step(time) == sum(complete <= time for complete in times)
    assert clock.step(time) <= clock.position(time) <= clock.step(time) + 1


def test_a_position_grows_evenly_within_a_step() -> None:
    clock = Clock(1000, [2000, 4000], [10, 12], end=10**6)
    assert [clock.position(time) for time in (0, 1000, 1500, 2000, 3000, 4000)] == [9, 9, 9.5, 10, 11, 12]
    assert clock.position(5000) == 12.5, "as long as the step before"
    assert clock.position(99999) == 13, "and no further"


def test_an_attempt_without_a_step_lies_before_the_first_one() -> None:
    clock = Clock(1000, [], [], end=3000)
    assert [clock.position(time) for time in (1000, 2000, 3000)] == [-1, -0.5, 0]
    assert Clock(1000, [], [], end=0).position(1000) == -1


def test_what_is_told_after_the_end_is_of_the_end() -> None:
    clock = Clock(1000, [2000, 4000], [1, 2], end=4500)
    assert [clock.position(time) for time in (4400, 4500, 5000)] == [2.2, 2.25, 2.25]
    assert Clock(1000, [2000, 4000], [1, 2], end=3000).position(4000) == 2, "a step that was told late"
