"""Reading embedded files: whole ones, torn ones, and what is no telemetry at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.cli import figures
from tests.cli.recordings import session

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
    recording = figures.read(path)
    (only,) = recording.sessions
    assert (recording.lines, recording.unreadable, only.exports) == (3, 0, 3)
    shown = {
        (series.name, series.labels): (series.values, series.unit, series.total) for series in only.sorted_series()
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
    (only,) = figures.read(path).sessions
    assert {s.name: only.is_current(s) for s in only.sorted_series()} == {"ends": False, "stays": True}


def _observation(value: float):
    from opentelemetry.metrics import Observation

    return Observation(value)


def test_a_torn_last_line_costs_that_line_only(path: Path) -> None:
    _write_steps(path, [1.0, 2.0])
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[1]) // 2, len(lines[1]) - 2):
        path.write_bytes(lines[0] + lines[1][:cut])
        recording = figures.read(path)
        assert (recording.lines, recording.unreadable) == (2, 1)
        assert recording.sessions[0].exports == 1
    path.write_bytes(whole.rstrip(b"\n"))  # only the newline is missing: nothing is lost
    assert figures.read(path).unreadable == 0


def test_bytes_that_are_no_text_cost_their_line_only(path: Path) -> None:
    _write_steps(path, [1.0])
    path.write_bytes(b"\xff\xfe\x00{\n\n" + path.read_bytes() + b"\x00" * 64 + b"\n" + b"[" * 100_000 + b"\n")
    recording = figures.read(path)
    assert (recording.lines, recording.unreadable, len(recording.sessions)) == (4, 3, 1)


def test_sessions_are_told_apart_and_the_newest_comes_last(path: Path) -> None:
    for run_id, values in (("first", [1.0]), ("second", [2.0, 3.0]), ("first", [4.0])):
        _write_steps(path, values, run_id)
    sessions = figures.read(path).sessions
    runs = [(next(iter(s.resource.values())), s.exports) for s in sessions]
    assert runs == [("second", 2), ("first", 2)]


def test_histograms_keep_their_newest_point(path: Path) -> None:
    with session(path) as recording:
        for name in ("explicit", "exponential"):
            recording.meter.create_histogram(name, "s").record(4)
        recording.export()
        for name in ("explicit", "exponential"):
            recording.meter.create_histogram(name, "s").record(8)
        recording.export()
    (only,) = figures.read(path).sessions
    for series in only.sorted_series():
        assert series.histogram is not None
        assert (series.histogram.count, series.histogram.mean) == (2, 6)
        assert series.values == []


def test_an_empty_file_is_an_empty_recording(path: Path) -> None:
    path.touch()
    recording = figures.read(path)
    assert (recording.sessions, recording.lines, recording.unreadable) == ([], 0, 0)


def test_values_that_json_has_no_number_for(path: Path) -> None:
    point = {"name": "g", "gauge": {"dataPoints": [{"asDouble": "NaN"}, {"flags": 1}]}}
    path.write_text(json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [point]}]}]}))
    (only,) = figures.read(path).sessions
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
        recording = figures.read(path)
    assert recording.lines == len(documents) + 1
    assert recording.unreadable <= len(documents)
    assert any(("gauge", (("term", "a"),)) in s.series for s in recording.sessions)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_can_stop_the_reader(junk: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "metrics.jsonl"
        path.write_bytes(junk)
        recording = figures.read(path)
    assert recording.unreadable == recording.lines
    assert recording.sessions == []
