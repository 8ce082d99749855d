"""`akka-otel show` of a run's spans and log records, written by the package's own exporters."""

from __future__ import annotations

import copy
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Group
from typer.testing import CliRunner

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.cli.output import console_on
from akka_otel_callbacks.cli.story import story
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.reading import Reader, files, spans
from tests.common.reports import Report

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Records a run of two evaluations, the second of which failed, and an upload that the job's end cut off."""

    def recorded(run_id: str = "run", body: str = "it is hot", lines: int = 1) -> Path:
        monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
        monkeypatch.setenv("OTEL_LOGS_EXPORTER", "file")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "file")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "file")
        monkeypatch.setenv("TRACEPARENT", f"00-{TRACE_ID}-00f067aa0ba902b7-01")
        telemetry = Telemetry.start(identify(os.environ, engine={}, run_id=run_id), RLStep)
        telemetry.capture(Report(RLStep(number=1, reward=1.0)), step=True)
        telemetry.span(names.SPAN_EVAL, 10**18, 10**18 + 2 * 10**9)
        telemetry.span(names.SPAN_EVAL, 2 * 10**18, 2 * 10**18 + 4 * 10**9, error=ValueError("secret"))
        publication = telemetry.trace.begin(names.SPAN_CHECKPOINT_OPERATION.of("publish"), 10**18)
        telemetry.trace.begin(names.SPAN_CHECKPOINT_OPERATION.of("upload"), 10**18, publication)
        for _ in range(lines):
            logger.warning("%s", body)
        telemetry.close()
        return tmp_path

    return recorded


def show(path: Path, *more: str) -> str:
    result = CliRunner().invoke(app, ["show", str(path), *more])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_spans_stand_under_their_parents(record: Callable[..., Path]) -> None:
    shown = show(record()).splitlines()
    start = shown.index(f"trace {TRACE_ID}")
    job, evaluations, publication, upload = (line.rstrip() for line in shown[start + 2 : start + 6])
    assert job.startswith("job ")
    assert evaluations.split() == ["eval", "2", "3", "4", "1", "failed"]
    assert publication.startswith("  checkpoint.publish  ")
    assert upload.startswith("    checkpoint.upload  ")
    assert publication.endswith("1 unfinished")


def test_warnings_are_shown_with_their_time(record: Callable[..., Path]) -> None:
    shown = show(record(body="it is \x1b[31mhot", lines=12))
    assert "12 warnings and errors, the newest 10 of them" in shown
    assert len(re.findall(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d +WARN +it is hot", shown)) == 10
    assert "secret" not in shown


def test_the_run_s_own_alone(record: Callable[..., Path]) -> None:
    record("one", "of one")
    folder = record("other", "of the other")
    assert "of the other" in show(folder)
    assert "of one" not in show(folder)
    assert "of one" in show(folder, "--all")


def test_other_processes_spans_and_records_are_of_the_run(record: Callable[..., Path]) -> None:
    folder = record()
    (folder / "traces.jsonl").rename(folder / "traces-worker.0.jsonl")
    (folder / "logs.jsonl").rename(folder / "logs-worker.0.jsonl")
    assert f"trace {TRACE_ID}" in show(folder)
    assert "it is hot" in show(folder)


def test_a_run_without_either(record: Callable[..., Path]) -> None:
    folder = record()
    for path in (folder / "traces.jsonl", folder / "logs.jsonl"):
        path.unlink()
    (folder / "traces-a-folder.jsonl").mkdir()
    os.mkfifo(folder / "logs-a-pipe.jsonl")
    assert f"trace {TRACE_ID}" not in show(folder)
    assert "warning" not in show(folder)
    assert "traces-a-folder.jsonl cannot be read: Is a directory." in show(folder)
    assert "logs-a-pipe.jsonl cannot be read: it is a pipe, a socket or a device, not a file." in show(folder)


def test_spans_in_a_circle_and_very_deep_ones_end() -> None:
    def span(span_id: str, parent_id: str) -> spans.Span:
        return spans.Span("trace", span_id, parent_id, f"name-{span_id}", 0, 10**9, False, False)

    chain = [span(str(number), str(number - 1)) for number in range(1, 5000)]
    root = spans._tree([*chain, span("a", "b"), span("b", "a"), span("c", "c")])
    found = list(root.all())
    assert sum(branch.count for _, branch in found) == len(chain)
    assert max(depth for depth, _ in found) == spans.DEEPEST


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in places(item, (*path, key)))]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(data=st.data())
def test_no_change_of_a_good_line_can_stop_it(
    data: st.DataObject, good: Mapping[str, list[Any]], tmp_path: Path
) -> None:
    for name in ("traces.jsonl", "logs.jsonl"):
        document: Any = {"lines": copy.deepcopy(good[name])}
        *parents, last = data.draw(st.sampled_from(places(document)[2:]))
        holder = document
        for key in parents:
            holder = holder[key]
        holder[last] = data.draw(VALUES)
        (tmp_path / name).write_text("\n".join(map(json.dumps, document["lines"])))
    written = io.StringIO()
    for run in Reader(files(tmp_path)).read():
        console_on(written).print(Group(*story(run)))
    assert not set(written.getvalue()) & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}


@pytest.fixture
def good(record: Callable[..., Path]) -> Mapping[str, list[Any]]:
    folder = record()
    return {
        name: [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("traces.jsonl", "logs.jsonl")
    }
