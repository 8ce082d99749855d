"""The embedded files: the OTLP messages themselves, line by line, on disks that are well and on disks that are not."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from akka_otel_callbacks.common.export.targets import file
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.reports import Report, grpo_step, values
from tests.common.scripts import run
from tests.support.otlp_sink import otlp_sink, wait_until
from tests.support.points import Point, newest, points_of, spans_of

Start = Callable[..., Telemetry]


def lines(path: Path) -> list[dict[str, Any]]:
    """A file's documents; fails where it does not end with a whole line."""
    text = path.read_bytes()
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def exports(path: Path) -> list[list[Point]]:
    return [list(points_of(ParseDict(line, MetricsData()).resource_metrics)) for line in lines(path)]


def base64_ids(value: Any) -> Any:
    """OTLP/JSON's hex IDs as plain protobuf JSON has them."""
    if isinstance(value, list):
        return [base64_ids(item) for item in value]
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if re.search("(trace|[sS]pan)Id$", key)
            else base64_ids(item)
            for key, item in value.items()
        }
    return value


def report(telemetry: Telemetry, *steps: RLStep) -> None:
    for step in steps:
        telemetry.capture(Report(step), step=True)


# -- what is written


def test_a_line_is_the_message_that_a_collector_gets(start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_METRICS_EXPORTER", "file,otlp")
    environment.setenv("OTEL_TRACES_EXPORTER", "file,otlp")
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        telemetry = start()
        report(telemetry, grpo_step(1))
        telemetry.span(names.SPAN_EVAL, 10**18, 10**18 + 5, {"akka.test": "é"})
        telemetry.close()

    def timeless(points: list[Point]) -> list[Point]:
        """The two are collected one after the other, and a message begins with what has no gauge."""
        same = [dataclasses.replace(p, start_ns=int(p.start_ns > 0), time_ns=0, export=0) for p in points]
        return sorted(same, key=lambda point: (point.name, str(point.attributes)))

    written = exports(Path("akka-otel/run/metrics.jsonl"))[-1]
    assert len(written) > 50
    assert timeless(newest(written)) == timeless(newest(sink.last_export()))
    document = base64_ids(lines(Path("akka-otel/run/traces.jsonl"))[-1])
    assert list(spans_of(ParseDict(document, TracesData()).resource_spans)) == sink.spans()
    assert len(sink.spans()) == 2


def test_span_ids_are_hex_and_enums_are_numbers(start: Start) -> None:
    telemetry = start()
    telemetry.span(names.SPAN_EVAL, 1, 2)
    report(telemetry, grpo_step(1))
    telemetry.close()
    (document,) = lines(Path("akka-otel/run/traces.jsonl"))
    child, job = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert re.fullmatch("[0-9a-f]{32}", job["traceId"])
    assert re.fullmatch("[0-9a-f]{16}", job["spanId"])
    assert (child["traceId"], child["parentSpanId"]) == (job["traceId"], job["spanId"])
    metrics = lines(Path("akka-otel/run/metrics.jsonl"))[-1]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    assert {metric["sum"]["aggregationTemporality"] for metric in metrics if "sum" in metric} == {2}, "cumulative"


def test_one_signal_a_file_and_every_line_whole(start: Start) -> None:
    telemetry = start()
    report(telemetry, grpo_step(1))
    telemetry.close()
    assert {tuple(line) for line in lines(Path("akka-otel/run/metrics.jsonl"))} == {("resourceMetrics",)}
    assert {tuple(line) for line in lines(Path("akka-otel/run/traces.jsonl"))} == {("resourceSpans",)}


ONE_GPU_OR_TWO_ENGINES = (
    "idle policy_loss mfu memory_bytes memory_max_allocated_bytes memory_max_reserved_bytes".split()
)
IDENTITY = {
    names.ATTR_RUN_METHOD: "GRPO",
    names.ATTR_RUN_BASE_MODEL: "Qwen/Qwen3-30B-A3B-Instruct-2507",
    names.ATTR_RUN_LEARNING_RATE: 1e-6,
    names.ATTR_RUN_LORA_RANK: 64,
    names.ATTR_RUN_GROUP_SIZE: 16,
    names.ATTR_RUN_SETTINGS_SHA: "0123456789abcdef",
    names.ATTR_PROJECT: "a-project-of-some-name",
}


def test_a_line_has_19_kilobytes_and_5_more_for_each_step(environment: pytest.MonkeyPatch) -> None:
    telemetry = Telemetry.start(identify({}, engine=IDENTITY, run_id="run"), RLStep)
    for number in range(1, 201):
        step = dataclasses.replace(grpo_step(number), **dict.fromkeys(ONE_GPU_OR_TWO_ENGINES))
        step.rollout_completion_length = [number * index + 1 for index in range(32)]
        report(telemetry, step)
    assert telemetry.flush(20)
    telemetry.close(timeout_s=20)
    written = exports(Path("akka-otel/run/metrics.jsonl"))
    steps = [sum(point.name == names.RL_STEP_REWARD.name for point in points) - 1 for points in written]
    sizes = [len(line) for line in Path("akka-otel/run/metrics.jsonl").read_bytes().splitlines()]
    assert (sum(steps), steps[-1]) == (200, 0)
    assert 10_000 < sizes[-1] <= 19_000
    assert max(size - sizes[-1] for size in sizes) / max(steps) <= 6_000
    print(steps, sizes)


# -- when it is written


def test_nothing_is_touched_before_there_is_something_to_write(start: Start, tmp_path: Path) -> None:
    telemetry = start()
    time.sleep(0.1)
    assert list(tmp_path.iterdir()) == []
    report(telemetry, grpo_step(1))
    wait_until(lambda: Path("akka-otel/run/metrics.jsonl").exists() and exports(Path("akka-otel/run/metrics.jsonl")))


def test_a_program_that_changes_its_folder_finds_the_files_where_they_were_announced(
    start: Start, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    telemetry = start()
    (tmp_path / "elsewhere").mkdir()
    environment.chdir(tmp_path / "elsewhere")
    report(telemetry, grpo_step(1))
    telemetry.close()
    assert sorted(path.name for path in (tmp_path / "akka-otel/run").iterdir()) == ["metrics.jsonl", "traces.jsonl"]


def test_quick_steps_are_not_written_one_by_one_but_all_are_in_what_is_written(
    start: Start, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(file, "PAUSE_S", 0.25)
    telemetry = start()
    for number in range(1, 101):
        report(telemetry, RLStep(number=number, reward=float(number), duration_s=0.01))
        time.sleep(0.01)
    telemetry.close()
    written = exports(Path("akka-otel/run/metrics.jsonl"))
    times = [points[0].time_ns / 1e9 for points in written]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(written) <= 8
    assert min(gaps[:-1]) > 0.15, "only the last one, at the end, may follow at once"
    assert values(written[-1], names.RL_STEP_COUNT) == {None: 100}
    assert values(written[-1], names.RL_STEP_REWARD) == {None: 100.0}


def test_slow_steps_keep_a_line_each(start: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setattr(file, "PAUSE_S", 0.05)

    def written() -> list[float | None]:
        path = Path("akka-otel/run/metrics.jsonl")
        return [values(points, names.RL_STEP_REWARD)[None] for points in exports(path)] if path.exists() else []

    telemetry = start()
    for number in range(1, 6):
        report(telemetry, RLStep(number=number, reward=float(number)))
        wait_until(lambda number=number: float(number) in written())
    telemetry.close()
    assert sorted(set(written())) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_pause_is_two_seconds() -> None:
    assert file.PAUSE_S == 2.0


# -- disks that are not well


def warnings_of(log: pytest.LogCaptureFixture, path: str) -> list[str]:
    return [
        record.getMessage() for record in log.records if record.levelname == "WARNING" and path in record.getMessage()
    ]


@pytest.mark.parametrize("directory", ["file", "file/below", "/proc/none/such"])
def test_a_folder_that_cannot_be_written(
    directory: str, start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    environment.setenv("AKKA_OTEL_DIR", directory)
    environment.setattr(file, "PAUSE_S", 0.02)
    telemetry = start()
    for number in range(1, 5):
        report(telemetry, grpo_step(number))
        assert telemetry.flush(10)
    telemetry.close()
    first, *rest = warnings_of(log, f"{directory}/metrics.jsonl")
    assert "cannot write telemetry" in first
    assert "AKKA_OTEL_DIR" in first
    all_exports, steps = rest
    assert "exports in all could not be written" in all_exports, "how much was lost is said once, at the end"
    assert steps.startswith("4 steps were not sent to file")
    assert (tmp_path / "file").read_text() == "mine"


WITHOUT_PERMISSION = """
telemetry = start()
os.setgid(65534); os.setuid(65534)
telemetry.capture(Report(grpo_step(1)), step=True)
telemetry.close()
print("trained on")
"""


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o700)
    done = run(WITHOUT_PERMISSION, {"AKKA_OTEL_DIR": str(directory)}, Path("/"))
    assert (done.returncode, done.stdout) == (0, "trained on\n"), done.stderr
    assert done.stderr.count("cannot write telemetry") == 2, "one for each file"
    assert "Permission denied" in done.stderr


FULL_DISK = """
import resource
from akka_otel_callbacks.common.export.targets import file
from akka_otel_callbacks.common.recording import translator
file.PAUSE_S = translator.NAP_S = 0.01  # a line a step
telemetry = start()
number = 0
def train(steps):
    global number
    for _ in range(steps):
        number += 1
        telemetry.capture(Report(grpo_step(number)), step=True)
        time.sleep(0.03)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
train(2)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, hard))
train(20)
with open("akka-otel/run/metrics.jsonl", "rb") as file:
    full = file.read()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
train(2)
telemetry.close()
print(json.dumps({"steps": number, "size": len(full), "whole": full.endswith(b"\\n"), "lines": full.count(b"\\n")}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no RLIMIT_FSIZE")
def test_a_full_disk_keeps_the_lines_before_and_goes_on_when_it_is_freed(tmp_path: Path) -> None:
    done = run(FULL_DISK, {}, tmp_path)
    assert done.returncode == 0, done.stderr
    full = json.loads(done.stdout)
    assert full["whole"], "never half a line"
    assert full["lines"] >= 2
    assert 60_000 - 30_000 < full["size"] <= 60_000
    assert done.stderr.count("cannot write telemetry") == 1
    written = exports(tmp_path / "akka-otel/run/metrics.jsonl")
    assert len(written) > full["lines"]
    assert values(written[-1], names.RL_STEP_COUNT) == {None: full["steps"]}, "cumulative: what was lost is in the next"


def test_a_later_attempt_appends(start: Start) -> None:
    for _ in range(2):
        telemetry = start()
        report(telemetry, grpo_step(1))
        telemetry.close()
    assert [values(points, names.RL_STEP_COUNT) for points in exports(Path("akka-otel/run/metrics.jsonl"))][-1] == {
        None: 1
    }
    assert len(lines(Path("akka-otel/run/traces.jsonl"))) == 2
