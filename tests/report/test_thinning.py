"""Fewer points, and every spike still there."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.report.thinning import extremes, parts

COURSES = st.lists(
    st.tuples(st.integers(-(10**6), 10**6), st.floats(-1e9, 1e9)), min_size=1, max_size=300, unique_by=lambda p: p[0]
).map(lambda points: [*map(list, zip(*sorted(points), strict=True))])


@given(COURSES, st.integers(4, 40))
def test_extremes_keep_the_ends_and_the_spikes(course: list[list[float]], most: int) -> None:
    x, y = course
    kept = extremes(x, y, most)
    assert kept == sorted({*kept})
    assert len(kept) <= max(most, min(len(x), most))
    assert {0, len(x) - 1} <= {*kept}
    assert {min(y), max(y)} <= {y[place] for place in kept}


@given(COURSES, st.integers(1, 40))
def test_parts_have_every_point_once_and_in_order(course: list[list[float]], most: int) -> None:
    x, _ = course
    found = parts(x, most)
    assert [place for part in found for place in part] == [*range(len(x))]
    assert len(found) <= most or len(x) <= most
    width = (x[-1] - x[0]) / most
    if len(x) > most:
        assert all(x[part[-1]] - x[part[0]] <= width * 1.001 for part in found)


def test_parts_are_equal_pieces_of_the_axis_and_not_of_the_points() -> None:
    x = [*range(100), 1000]
    assert [len(part) for part in parts(x, 10)] == [100, 1]
    assert all(one[-1] < other[0] for one, other in pairwise(parts(x, 7)))
