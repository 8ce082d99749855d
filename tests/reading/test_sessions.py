"""Reading files of metrics: whole ones, torn ones, and what is no telemetry at all."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import Reader, Series, Session
from tests.support.recordings import session

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    "resourceMetrics resource scopeMetrics metrics name unit gauge sum histogram exponentialHistogram dataPoints "
    "asDouble asInt attributes key value stringValue count bucketCounts explicitBounds min max scale positive "
    "offset".split()
)
OTLP_LIKE = st.recursive(
    JSON_VALUES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


class Recording:
    """What a reader finds in a file."""

    def __init__(self, path: Path) -> None:
        reader = Reader([path])
        self.sessions = [session for run in reader.read() for session in run.sessions]
        (source,) = reader.sources.values()
        self.lines, self.unreadable = source.read_lines + source.unreadable, source.unreadable


def one(session: Session, name: str) -> Series:
    (series,) = session.of(name)
    return series


def _write_steps(path: Path, values: list[float], run_id: str = "run-1") -> None:
    with session(path, run_id) as recording:
        gauge = recording.meter.create_gauge("gauge", "s")
        counter = recording.meter.create_counter("counter", "{step}")
        for value in values:
            gauge.set(value, {"term": "a"})
            gauge.set(-value, {"term": "b"})
            counter.add(1)
            recording.export()


def test_series_keep_their_values_in_order(path: Path) -> None:
    _write_steps(path, [1.0, 2.5, 0.5])
    recording = Recording(path)
    (only,) = recording.sessions
    assert (recording.lines, recording.unreadable, only.exports) == (3, 0, 3)
    shown = {
        (series.name, series.labels): ([*series.values], series.unit, series.total) for series in only.sorted_series()
    }
    assert shown == {
        ("counter", ()): ([1, 2, 3], "{step}", True),
        ("gauge", (("term", "a"),)): ([1.0, 2.5, 0.5], "s", False),
        ("gauge", (("term", "b"),)): ([-1.0, -2.5, -0.5], "s", False),
    }


def test_a_series_that_ended_is_not_current(path: Path) -> None:
    with session(path) as recording:
        alive = [1.0]
        recording.meter.create_observable_gauge("ends", [lambda _: [_observation(v) for v in alive]])
        recording.meter.create_gauge("stays").set(1)
        recording.export()
        alive.clear()
        recording.export()
    (only,) = Recording(path).sessions
    assert {s.name: only.is_current(s) for s in only.sorted_series()} == {"ends": False, "stays": True}


def _observation(value: float) -> Any:
    from opentelemetry.metrics import Observation

    return Observation(value)


def test_a_torn_last_line_costs_that_line_only(path: Path) -> None:
    _write_steps(path, [1.0, 2.0])
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[1]) // 2, len(lines[1]) - 2):
        path.write_bytes(lines[0] + lines[1][:cut])
        recording = Recording(path)
        assert (recording.lines, recording.unreadable) == (2, 1)
        assert recording.sessions[0].exports == 1
    path.write_bytes(whole.rstrip(b"\n"))  # only the newline is missing: nothing is lost
    assert Recording(path).unreadable == 0


def test_bytes_that_are_no_text_cost_their_line_only(path: Path) -> None:
    _write_steps(path, [1.0])
    path.write_bytes(b"\xff\xfe\x00{\n\n" + path.read_bytes() + b"\x00" * 64 + b"\n" + b"[" * 100_000 + b"\n")
    recording = Recording(path)
    assert (recording.lines, recording.unreadable, len(recording.sessions)) == (4, 3, 1)


def test_sessions_are_told_apart_and_the_newest_comes_last(path: Path) -> None:
    with session(path, "first") as first, session(path, "second") as second:
        gauges = {recording: recording.meter.create_gauge("gauge") for recording in (first, second)}
        for recording in (first, second, second, first):
            gauges[recording].set(1)
            recording.export()
        second.meter.create_gauge("late").set(1)
        second.export()
    sessions = Recording(path).sessions
    runs = [(next(iter(s.resource.values())), s.exports) for s in sessions]
    assert runs == [("first", 2), ("second", 3)]


def test_attempts_of_one_run_are_kept_apart(path: Path) -> None:
    for attempt in (1, 2):
        with session(path, **{names.ATTR_RUN_ATTEMPT.name: attempt}) as recording:
            recording.meter.create_counter("counter").add(10 * attempt)
            recording.export()
    sessions = Recording(path).sessions
    assert [s.resource[names.ATTR_RUN_ATTEMPT.name] for s in sessions] == ["1", "2"]
    assert [[*one(s, "counter").values] for s in sessions] == [[10], [20]]


def test_a_training_that_counts_anew_under_the_same_identity_is_a_session_of_its_own(path: Path) -> None:
    """As two trainings of one notebook may, or a run that was started again without a new attempt."""
    for steps in (2, 3):
        with session(path) as recording:
            for step in range(steps):
                recording.meter.create_counter(names.SFT_STEP_COUNT.name).add(1)
                recording.meter.create_gauge(names.SFT_STEP_LOSS.name).set(steps + step / 10)
                recording.export()
    with session(path) as alone:  # an evaluation by itself counts no steps
        alone.meter.create_counter("counter").add(1)
        alone.meter.create_gauge(names.SFT_EVAL_LOSS.name).set(1)
        alone.export()
    sessions = Recording(path).sessions
    assert [[*one(s, names.SFT_STEP_COUNT.name).values] for s in sessions] == [[1, 2], [1, 2, 3]]
    assert [[*one(s, names.SFT_STEP_LOSS.name).values] for s in sessions] == [[2, 2.1], [3, 3.1, 3.2]]
    assert sessions[-1].of(names.SFT_EVAL_LOSS)


def _document(*metrics: dict) -> str:
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": list(metrics)}]}]}) + "\n"


def _gauge(*points: tuple[int, float], flags: int = 0) -> dict:
    taken = [{"timeUnixNano": str(time), "asDouble": value, "flags": flags} for time, value in points]
    return {"name": "g", "gauge": {"dataPoints": taken}}


def _values(path: Path) -> list[float]:
    (only,) = Recording(path).sessions
    (series,) = only.sorted_series()
    return [*series.values]


@given(st.permutations(range(1, 13)), st.lists(st.integers(0, 11), max_size=3))
def test_several_points_of_a_gauge_are_taken_in_the_order_of_their_times_and_once(order: list, cuts: list) -> None:
    """As many lines as there are cuts, and every line ends with the first point of the next."""
    edges = [0, *sorted(cuts), len(order)]
    lines = [order[a : b + 1] for a, b in pairwise(edges)]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        path.write_text("".join(_document(_gauge(*((time, -time) for time in line))) for line in lines if line))
        assert _values(path) == [-time for time in range(1, 13)]


@given(st.lists(st.permutations("abc").map(lambda terms: terms[1:]), min_size=1, max_size=6))
def test_series_are_told_apart_in_whatever_order_they_come(documents: list) -> None:
    """The second and third of each document's terms: one of three is missing."""
    with TemporaryDirectory() as directory:
        path, expected = Path(directory) / "metrics.jsonl", {}
        with path.open("w") as file:
            for number, terms in enumerate(documents, 1):
                points = [
                    {
                        "timeUnixNano": str(number),
                        "asDouble": number,
                        "attributes": [{"key": "k", "value": {"stringValue": term}}],
                    }
                    for term in terms
                ]
                file.write(_document({"name": "g", "gauge": {"dataPoints": points}}))
                for term in terms:
                    expected.setdefault((("k", term),), []).append(number)
        (only,) = Recording(path).sessions
        assert {series.labels: [*series.values] for series in only.of("g")} == expected


def test_the_figure_that_holds_now_is_no_step(path: Path) -> None:
    """Each line ends with it, at the time of the export."""
    path.write_text(
        _document(_gauge((1, 5.0), (2, 5.0), (9, 5.0)))
        + _document(_gauge((19, 5.0)))
        + _document(_gauge((21, 6.0), (29, 6.5)))  # the step before last was thinned out
    )
    assert _values(path) == [5, 5, 6, 6.5]


def test_a_figure_that_the_latest_step_lacks_has_ended(path: Path) -> None:
    with_kl, without = {**_gauge((1, 0.5), (2, 0.5)), "name": "kl"}, {**_gauge((1, 7), (3, 8), (9, 8)), "name": "loss"}
    path.write_text(_document(with_kl, without))
    (only,) = Recording(path).sessions
    shown = {series.name: ([*series.values], only.is_current(series)) for series in only.sorted_series()}
    assert shown == {"kl": ([0.5, 0.5], False), "loss": ([7, 8], True)}


def test_a_gauge_that_is_read_at_every_export_keeps_its_equal_values(path: Path) -> None:
    path.write_text(_document(_gauge((9, 50))) + _document(_gauge((19, 50))) + _document(_gauge((29, 51))))
    assert _values(path) == [50, 50, 51]


def test_points_that_do_not_say_their_time_keep_their_place(path: Path) -> None:
    path.write_text(_document(_gauge((0, 1), (0, 1), (0, 2))) + _document(_gauge((7, 3), (0, 4))))
    assert _values(path) == [1, 1, 2, 3, 4]


def test_a_point_without_a_recorded_value_ends_its_series_and_leaves_its_value(path: Path) -> None:
    point = {"timeUnixNano": "1", "count": "2", "sum": 3, "explicitBounds": [1], "bucketCounts": ["1", "1"]}
    empty = {"timeUnixNano": "2", "flags": 1}
    counter, ended = ({"name": "c", "sum": {"dataPoints": [p]}} for p in ({"timeUnixNano": "1", "asInt": "5"}, empty))
    histograms = [{"name": "h", "histogram": {"dataPoints": [p]}} for p in (point, empty)]
    other = {"name": "x", "exponentialHistogram": {"dataPoints": [{"timeUnixNano": "1", "count": "4"}]}}
    gone = {"name": "x", "exponentialHistogram": {"dataPoints": [{"timeUnixNano": "2", "flags": "1"}]}}
    path.write_text(
        _document(_gauge((1, 0.5)), counter, histograms[0], other)
        + _document(_gauge((2, 0), flags=1), ended, histograms[1], gone)
    )
    (only,) = Recording(path).sessions
    assert only.exports == 2
    shown = {series.name: series for series in only.sorted_series()}
    assert not any(map(only.is_current, shown.values()))
    assert ([*shown["g"].values], [*shown["c"].values]) == ([0.5], [5])
    counts = [series.histogram.count for name in "hx" if (series := shown[name]).histogram is not None]
    assert counts == [2, 4]


def test_histograms_keep_their_newest_point(path: Path) -> None:
    with session(path) as recording:
        for name in ("explicit", "exponential"):
            recording.meter.create_histogram(name, "s").record(4)
        recording.export()
        for name in ("explicit", "exponential"):
            recording.meter.create_histogram(name, "s").record(8)
        recording.export()
    (only,) = Recording(path).sessions
    for series in only.sorted_series():
        assert series.histogram is not None
        assert (series.histogram.count, series.histogram.mean) == (2, 6)
        assert not series.values


def test_an_empty_file_is_an_empty_recording(path: Path) -> None:
    path.touch()
    recording = Recording(path)
    assert (recording.sessions, recording.lines, recording.unreadable) == ([], 0, 0)


def test_values_that_json_has_no_number_for(path: Path) -> None:
    point = {"name": "g", "gauge": {"dataPoints": [{"asDouble": "NaN"}, {"flags": 1}]}}
    path.write_text(json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [point]}]}]}))
    (only,) = Recording(path).sessions
    (series,) = only.sorted_series()
    assert len(series.values) == 1  # a point without a value is none
    assert math.isnan(series.values[0])


@settings(deadline=None)  # it writes files
@given(st.lists(JSON_VALUES | st.fixed_dictionaries({"resourceMetrics": st.lists(OTLP_LIKE, max_size=2)}), max_size=4))
def test_no_json_can_stop_the_reader(documents: list) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        _write_steps(path, [1.0])
        with path.open("a") as file:
            file.writelines(json.dumps(document) + "\n" for document in documents)
        recording = Recording(path)
    assert recording.lines == len(documents) + 1
    assert recording.unreadable <= len(documents)
    assert any(series.labels == (("term", "a"),) for s in recording.sessions for series in s.of("gauge"))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_can_stop_the_reader(junk: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        path.write_bytes(junk)
        recording = Recording(path)
    assert recording.unreadable == recording.lines
    assert recording.sessions == []
