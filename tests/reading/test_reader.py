"""Reading runs: from whoever's files, packed, torn, growing, and of several processes."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View

from akka_otel_callbacks.common.export.otlp.json import document
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.logs.message import HAS_EVENTS
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.reading import Reader, Run, files, runs
from tests.common.reports import Report
from tests.support.recordings import session

STEPS = 3


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Records a run of a few steps that ends with an error, or well; returns its folder."""

    def record(error: BaseException | None = None, run_id: str = "run", **variables: str) -> Path:
        folder = tmp_path / run_id
        chosen = {f"OTEL_{signal}_EXPORTER": "file" for signal in ("METRICS", "TRACES", "LOGS")}
        for name, value in {"AKKA_OTEL_DIR": str(folder), **chosen, **variables}.items():
            monkeypatch.setenv(name, value)
        telemetry = Telemetry.start(identify(os.environ, engine={}, run_id=run_id), RLStep)
        for number in range(1, STEPS + 1):
            telemetry.capture(Report(RLStep(number=number, reward=number / 10)), step=True)
            time.sleep(0.002)  # each has a millisecond of its own
        telemetry.span(names.SPAN_EVAL, time.time_ns(), time.time_ns())
        logger.warning("it is hot")
        telemetry.close(error)
        return folder

    return record


def only(*paths: Path) -> Run:
    (run,) = Reader(paths).read()
    return run


def rewards(run: Run) -> list[float]:
    (series,) = run.session.of(names.RL_STEP_REWARD)
    return [*series.values]


WHOLE = [0.1, 0.2, 0.3]


def test_a_run_has_its_steps_its_spans_its_warnings_and_its_times(trained: Callable[..., Path]) -> None:
    before = time.time_ns()
    run = only(*files(trained()))
    assert (run.name, run.step, rewards(run)) == ("run", STEPS, pytest.approx(WHOLE))
    assert before <= run.start_ns <= run.newest_ns <= time.time_ns()
    (tree,) = run.traces.values()
    assert [branch.name for _, branch in tree.all()] == [names.SPAN_JOB.name, names.SPAN_EVAL.name]
    assert [record.body for record in run.records] == ["it is hot"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "finished"),
        (ValueError("secret"), "failed with ValueError"),
        (KeyboardInterrupt(), "interrupted by KeyboardInterrupt"),
        (SystemExit(1), "interrupted by SystemExit"),
    ],
)
def test_a_run_says_how_it_ended(trained: Callable[..., Path], error: BaseException | None, said: str) -> None:
    folder = trained(error)
    assert str(only(*files(folder)).ending) == said
    (folder / "traces.jsonl").unlink()
    by_record = said if error and HAS_EVENTS else "no end recorded"
    assert str(only(*files(folder)).ending) == by_record
    (folder / "logs.jsonl").unlink()
    assert str(only(*files(folder)).ending) == "no end recorded"


def test_another_program_s_job_that_a_request_stopped_is_paused(trained: Callable[..., Path]) -> None:
    """No engine knows of such requests."""
    path = trained() / "traces.jsonl"
    spans = json.loads(path.read_text())
    job = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
    job["attributes"] = [{"key": names.ATTR_PAUSE_POLICY.name, "value": {"stringValue": "fresh"}}]
    path.write_text(json.dumps(spans) + "\n")
    assert str(only(path).ending) == "paused"


def test_a_job_that_only_evaluated_has_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its only export comes after its end."""
    start_training(tmp_path, monkeypatch, SFTStep(eval_loss=2.5)).close()
    spans = json.loads((tmp_path / "traces.jsonl").read_text())
    job = spans["resourceSpans"][0]["scopeSpans"][0]["spans"][-1]
    job["endTimeUnixNano"] = str(int(job["startTimeUnixNano"]) + 1)
    (tmp_path / "traces.jsonl").write_text(json.dumps(spans) + "\n")
    run = only(*files(tmp_path))
    assert (str(run.ending), run.step) == ("finished", None)
    assert run.start_ns == run.job.start


def test_an_evaluation_before_a_training_is_not_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both under one identity, as in one process. The training still runs."""
    start_training(tmp_path, monkeypatch, SFTStep(eval_loss=2.5)).close()
    steps = [SFTStep(number=number, loss=1.0) for number in (1, 2)]
    training = start_training(tmp_path, monkeypatch, *steps)
    training.flush(10)
    run = only(*files(tmp_path))
    assert (str(run.ending), run.step) == ("no end recorded", 2)
    training.close()
    assert str(only(*files(tmp_path)).ending) == "finished"


def start_training(folder: Path, monkeypatch: pytest.MonkeyPatch, *steps: SFTStep) -> Telemetry:
    """One that has made these steps."""
    chosen = {f"OTEL_{signal}_EXPORTER": "file" for signal in ("METRICS", "TRACES")}
    for name, value in {"AKKA_OTEL_DIR": str(folder), **chosen}.items():
        monkeypatch.setenv(name, value)
    telemetry = Telemetry.start(identify(os.environ, engine={}, run_id="run"), SFTStep)
    for step in steps:
        telemetry.capture(Report(step), step=step.number is not None)
        time.sleep(0.01)
    return telemetry


def test_a_figure_is_of_the_step_whose_time_it_has(trained: Callable[..., Path]) -> None:
    run = only(*files(trained()))
    (series,) = run.session.of(names.RL_STEP_REWARD)
    steps = run.steps()
    assert [steps.at(time_ns) for time_ns in series.times] == [1, 2, 3]
    assert (steps.at(series.times[0] - 1), steps.at(series.times[-1] + 10**9)) == (None, 3)


def test_one_file_with_every_signal_is_read_as_a_collector_writes_it(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    recorded = trained()
    lines = [line for name in ("metrics", "traces", "logs") for line in (recorded / f"{name}.jsonl").open("rb")]
    folder = tmp_path / "collected"
    folder.mkdir()
    (folder / "telemetry.json").write_bytes(b"".join(lines[1:-1]))
    packed = gzip.compress(lines[0]) + gzip.compress(lines[-1])
    (folder / "older.json.gz").write_bytes(packed)
    os.utime(folder / "older.json.gz", (1, 1))
    (folder / "rows.jsonl").write_text('{"prompt": "no telemetry"}\n')
    (folder / "config.json").write_text("{}")
    assert {path.name for path in files(folder)} == {"telemetry.json", "older.json.gz"}
    run = only(*files(folder))
    assert (rewards(run), run.ending.how, len(run.records)) == (pytest.approx(WHOLE), "finished", 1)


def test_rotated_files_are_one_recording(trained: Callable[..., Path]) -> None:
    file = trained() / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    older = file.with_name("metrics-2026-11-30T20-00-00.000.jsonl")
    older.write_bytes(lines[0])
    file.write_bytes(b"".join(lines[1:]))
    os.utime(older, (1, 1))
    run = only(*files(file.parent))
    assert rewards(run) == pytest.approx(WHOLE)
    assert all(map(run.session.is_current, run.session.of(names.RL_STEP_COUNT)))


def test_a_packed_file_that_was_cut_off_is_read_up_to_there(trained: Callable[..., Path]) -> None:
    file = trained() / "metrics.jsonl"
    content = file.read_bytes()
    packed = file.with_name("cut.jsonl.gz")
    packed.write_bytes(gzip.compress(content) + gzip.compress(content)[:-200])
    reader = Reader([packed])
    (run,) = reader.read()
    assert rewards(run) == pytest.approx(WHOLE)
    assert reader.sources[packed].unreadable == 1
    packed.write_bytes(b"\x28\xb5\x2f\xfd anything")
    reader = Reader([packed])
    assert reader.read() == []
    assert "zstd" in str(reader.sources[packed].error)


def test_a_growing_file_is_read_on_and_half_a_line_is_left(trained: Callable[..., Path], tmp_path: Path) -> None:
    content = (trained() / "metrics.jsonl").read_bytes() + b"\n"
    growing, read = tmp_path / "growing.jsonl", 0
    growing.touch()
    reader = Reader([growing])

    def count(more: int) -> None:
        nonlocal read
        read += more

    for end in (*range(0, len(content), len(content) // 7), len(content)):
        growing.write_bytes(content[:end])
        found = reader.read(count, growing=True)
        assert reader.sources[growing].unreadable == 0
        assert [run.name for run in found] == (["run"] if content.find(b"\n") < end else [])
    assert read == len(content), "nothing is read twice"
    assert rewards(found[0]) == pytest.approx(WHOLE)
    other = tmp_path / "other"
    other.write_bytes(content.replace(b'"run"', b'"new"'))
    other.replace(growing)
    assert [run.name for run in reader.read()] == ["run", "new"]


def test_other_processes_are_of_the_run_and_stand_for_it_alone(trained: Callable[..., Path]) -> None:
    folder = trained()
    for worker in ("worker.0", "worker.1"):
        identity = {names.ATTR_RUN_ATTEMPT.name: 1, names.ATTR_SERVICE_INSTANCE_ID.name: worker}
        with session(folder / f"metrics-{worker}.jsonl", "run", **identity) as recording:
            recording.meter.create_gauge(names.JOB_PLACEMENT.name).set(1)
            recording.export()
    run = only(*files(folder))
    assert rewards(run) == pytest.approx(WHOLE)
    assert len(run.others) == 2
    for name in ("metrics.jsonl", "traces.jsonl", "logs.jsonl"):
        (folder / name).unlink()
    run = only(*files(folder))
    assert len(run.sessions) == 2


def test_spans_alone_are_a_run(trained: Callable[..., Path]) -> None:
    run = only(trained() / "traces.jsonl")
    assert (run.name, run.session, run.step, str(run.ending)) == ("run", None, None, "finished")
    assert run.newest_ns > run.start_ns > 0


def test_ours_is_found_beside_a_metric_of_the_same_name(trained: Callable[..., Path]) -> None:
    file = trained() / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        theirs = {"scope": {"name": "theirs"}, "metrics": [{"name": names.RL_STEP_REWARD.name, "gauge": {}}]}
        theirs["metrics"][0]["gauge"]["dataPoints"] = [{"asDouble": 99.0, "timeUnixNano": "5"}]
        line["resourceMetrics"][0]["scopeMetrics"].insert(0, theirs)
    file.write_text("\n".join(map(json.dumps, lines)))
    assert rewards(only(file)) == pytest.approx(WHOLE)


def test_runs_of_a_folder_are_found_the_newest_last(trained: Callable[..., Path], tmp_path: Path) -> None:
    for age, run_id in enumerate(["b", "a"]):
        for file in trained(run_id=run_id).iterdir():
            os.utime(file, (age, age))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert [folder.name for folder in runs(tmp_path)] == ["b", "a"]
    assert files(tmp_path) == []


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(0, 1e6), max_size=5), min_size=1, max_size=5),
    st.sampled_from(["explicit", "exponential"]),
)
def test_deltas_add_up_to_totals(exports: list[list[float]], kind: str) -> None:
    """What the SDK exports as totals and what it exports as deltas tells the same."""
    found = []
    for temporality in (AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA):
        reader = InMemoryMetricReader(dict.fromkeys((Counter, Histogram, UpDownCounter), temporality))
        views = [View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())]
        provider = MeterProvider([reader], views=views, shutdown_on_exit=False)
        meter, sessions = provider.get_meter("test"), Reader()
        counter, histogram = meter.create_counter("counter"), meter.create_histogram(kind)
        for values in exports:
            counter.add(len(values))
            for value in values:
                histogram.record(value)
            sessions._take(document(reader.get_metrics_data()).encode(), _source())
        (run,) = sessions.read()
        (total,) = run.session.of("counter")
        distributions = run.session.of(kind)
        newest = distributions[0].histogram if distributions else None
        told = (
            (newest.count, newest.low, newest.high, [*newest.counts] if kind == "explicit" else sum(newest.counts))
            if newest
            else None
        )
        found.append((total.values[-1], told, newest and pytest.approx(newest.total)))
        provider.shutdown()
    assert found[0] == found[1]


def _source() -> Any:
    reader = Reader([Path("nowhere")])
    return reader.sources[Path("nowhere")]


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=6))
def test_the_values_between_two_points_of_a_histogram(added: Sequence[Sequence[int]]) -> None:
    from akka_otel_callbacks.reading.histogram import explicit

    totals = [[sum(counts[i] for counts in added[: n + 1]) for i in range(3)] for n in range(len(added))]
    points = [explicit({"count": sum(t), "explicitBounds": [0.0, 1.0], "bucketCounts": t}) for t in totals]
    for (earlier, later), counts in zip(pairwise(points), added[1:], strict=True):
        assert [bucket.count for bucket in later.since(earlier)] == counts
    anew = explicit({"count": 1, "explicitBounds": [0.0, 1.0], "bucketCounts": [0, 1, 0]})
    many = explicit({"count": 9, "explicitBounds": [0.0, 1.0], "bucketCounts": [9, 0, 0]})
    assert anew.since(many) == anew.buckets


def test_an_exponential_histogram_that_changed_its_scale_is_compared_all_the_same() -> None:
    from akka_otel_callbacks.reading.histogram import exponential

    fine = exponential({"count": 4, "scale": 1, "positive": {"offset": 0, "bucketCounts": [1, 1, 2]}})
    coarse = exponential({"count": 7, "scale": 0, "positive": {"offset": 0, "bucketCounts": [3, 4]}})
    new = {(bucket.low, bucket.high): bucket.count for bucket in coarse.since(fine)}
    assert new == {(0, 0): 0, (1, 2): 1, (2, 4): 2}
    assert [(b.low, b.high, b.count) for b in fine.plus(coarse).buckets] == [(0, 0, 0), (1, 2, 5), (2, 4, 6)]


def test_a_histogram_keeps_a_bounded_number_of_points_and_the_newest(tmp_path: Path) -> None:
    from akka_otel_callbacks.reading.series import MOST_HISTOGRAMS

    def line(number: int) -> Mapping[str, Any]:
        point = {"count": number, "timeUnixNano": str(number), "explicitBounds": [1.0], "bucketCounts": [number, 0]}
        metric = {"name": "h", "histogram": {"dataPoints": [point], "aggregationTemporality": 2}}
        return {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}

    many = 5 * MOST_HISTOGRAMS + 3
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(line(number)) for number in range(1, many + 1)))
    (series,) = only(tmp_path / "metrics.jsonl").session.sorted_series()
    points = series.histograms
    assert len(points) <= MOST_HISTOGRAMS + 1
    assert (points[0][0], points[-1][0], series.histogram.count) == (1, many, many)
    gaps = {later - earlier for (earlier, _), (later, _) in pairwise(points[:-1])}
    assert len(gaps) == 1, "evenly spread"


def test_reading_costs_a_few_times_what_parsing_costs(tmp_path: Path) -> None:
    """As much as it may cost to read 200 MB within ten seconds; measured against the same machine's JSON."""
    attributes = [[{"key": "k", "value": {"intValue": number}}] for number in range(20)]
    points = [
        {"timeUnixNano": str(10**18 + step), "asDouble": step / 7, "attributes": of_series}
        for of_series in attributes
        for step in range(40)
    ]
    metric = {"name": "m", "gauge": {"dataPoints": points}}
    line = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([line] * 10))

    def cpu_s(work: Callable[[], Any]) -> float:
        costs = []
        for _ in range(3):
            start = time.thread_time()
            work()
            costs.append(time.thread_time() - start)
        return min(costs)

    parsing = cpu_s(lambda: [json.loads(each) for each in path.read_text().splitlines()])
    assert cpu_s(lambda: Reader([path]).read()) < 8 * parsing
