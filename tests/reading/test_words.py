"""Numbers and times as people say them."""

from __future__ import annotations

import pytest

from akka_otel_callbacks.reading.words import clock_time, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"),
        (0, "0 s"),
        (0.0042, "4 ms"),
        (0.999, "999 ms"),
        (0.9996, "1 s"),
        (3.21, "3.21 s"),
        (59.96, "1 min 0 s"),
        (724, "12 min 4 s"),
        (3599.7, "1 h 0 min"),
        (7260, "2 h 1 min"),
        (2 * 86400 + 3 * 3600, "2 d 3 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_time_is_in_utc_to_the_second() -> None:
    assert clock_time(1_772_359_200_999_999_999) == "2026-03-01 10:00:00"
