"""A gauge's points, series by series, and as those see them that know only the SDK's points."""

from __future__ import annotations

import json

from opentelemetry.sdk.metrics.export import Gauge, NumberDataPoint

from akka_otel_callbacks.common.export.courses import Courses

A, B = {"term": "a"}, {"term": "b"}


def courses() -> Courses:
    found = Courses()
    found.add(1, [(0.5, A), (7, B)])
    found.add(2, [(1.5, A)])
    return found


def test_a_series_has_its_own_values_in_the_order_of_time() -> None:
    assert [(one.attributes, one.times_ns, one.values) for one in courses().series()] == [
        (A, [1, 2], [0.5, 1.5]),
        (B, [1], [7]),
    ]


def test_they_are_the_points_of_the_sdk_for_whoever_reads_those() -> None:
    points = [NumberDataPoint(A, 0, 1, 0.5), NumberDataPoint(A, 0, 2, 1.5), NumberDataPoint(B, 0, 1, 7)]
    found = courses()
    assert [*found] == points
    assert (len(found), found[0], found[-1], found[1:]) == (3, points[0], points[-1], points[1:])
    assert json.loads(Gauge(found).to_json()) == json.loads(Gauge(points).to_json())
