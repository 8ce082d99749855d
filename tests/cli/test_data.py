"""`akka-otel show --json`, `--csv`, and several runs beside each other, against what was recorded."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.common.vocabulary import names
from tests.support.recordings import session

COMMANDS = set(map(chr, (*range(10), *range(11, 32), *range(127, 160))))
"""What a terminal would obey, but for the line's end."""


def _show(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["show", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result


def _record(folder: Path, run_id: str, rewards: list[float], **resource: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with session(folder / "metrics.jsonl", run_id, **resource) as recording:
        reward = recording.meter.create_gauge(names.RL_STEP_REWARD.name, "{reward}")
        number = recording.meter.create_gauge(names.RL_STEP_NUMBER.name, "{step}")
        count = recording.meter.create_counter(names.RL_STEP_COUNT.name, "{step}")
        length = recording.meter.create_histogram("length", "{token}", explicit_bucket_boundaries_advisory=[2, 8])
        for step, value in enumerate(rewards, 11):
            reward.set(value, {"term": "total"})
            number.set(step)
            count.add(1)
            length.record(4)
            recording.export()
    return folder


def test_json_has_every_value_with_its_step(tmp_path: Path) -> None:
    rewards = [0.25, 1.0, 0.5]
    document = json.loads(_show(_record(tmp_path, "run-1", rewards), "--json").stdout)
    (run,) = document["runs"]
    assert (run["name"], run["step"], run["planned_steps"]) == ("run-1", 13, None)
    assert run["ending"] == {"how": "no end recorded", "error_type": None}
    (process,) = run["processes"]
    series = {one["metric"]: one for one in process["series"]}
    reward = series[names.RL_STEP_REWARD.name]
    assert (reward["values"], reward["unit"], reward["attributes"]) == (rewards, "{reward}", {"term": "total"})
    assert reward["step"] == series[names.RL_STEP_NUMBER.name]["values"] == [11, 12, 13]
    assert reward["time_unix_nano"] == sorted(reward["time_unix_nano"])
    newest = series["length"]["newest"]
    assert newest == {"count": 3, "mean": 4, "min": 4, "max": 4, "p50": 4, "p90": 4}


def test_csv_has_a_row_for_each_value(tmp_path: Path) -> None:
    file = _record(tmp_path, "run, 1", [0.25, 0.75, 0.5]) / "metrics.jsonl"
    file.write_text(file.read_text().replace('"asDouble":0.75', '"asDouble":"Infinity"'))
    text = _show(tmp_path, "--csv").stdout
    rows = [*csv.DictReader(io.StringIO(text))]
    found = [row for row in rows if row["metric"] == names.RL_STEP_REWARD.name]
    assert [row["value"] for row in found] == ["0.25", "Infinity", "0.5"]
    assert [row["step"] for row in found] == ["11", "12", "13"]
    assert {(row["run"], row["attributes"], row["unit"]) for row in found} == {("run, 1", "term=total", "{reward}")}
    statistics = {row["statistic"]: row["value"] for row in rows if row["metric"] == "length"}
    assert statistics == {"count": "3", "mean": "4", "min": "4", "max": "4", "p50": "4", "p90": "4"}


def test_notes_do_not_get_into_data(tmp_path: Path) -> None:
    for run_id in ("one", "two"):
        _record(tmp_path, run_id, [0.5])
    result = _show(tmp_path, "--json")
    assert len(json.loads(result.stdout)["runs"]) == 1
    assert "1 earlier run in the same files" in result.stderr
    assert len(json.loads(_show(tmp_path, "--json", "--all").stdout)["runs"]) == 2


def test_runs_stand_beside_each_other_with_what_differs(tmp_path: Path) -> None:
    one = _record(tmp_path / "1", "one", [0.25, 0.5], **{names.ATTR_RUN_LEARNING_RATE.name: 0.01, "same": 1})
    two = _record(tmp_path / "2", "two", [0.75], **{names.ATTR_RUN_LEARNING_RATE.name: 0.02, "same": 1})
    with session(two / "metrics.jsonl", "two", **{names.ATTR_RUN_LEARNING_RATE.name: 0.02, "same": 1}) as more:
        more.meter.create_gauge("alone").set(7)
        more.export()
    rows = [line.split() for line in _show(one, two).stdout.splitlines()]
    assert any(row[:4] == ["A", "one", "·", "running"] for row in rows)
    assert ["run.learning_rate", "0.01", "0.02"] in rows
    assert ["rl.step.reward", "total", "0.5", "▁█", "0.75", "reward"] in rows
    assert ["length", "4", "4", "token"] in rows
    assert ["alone", "–", "7"] in rows
    assert not any(row[:1] == ["same"] for row in rows)


def test_many_runs_leave_no_room_for_courses(tmp_path: Path) -> None:
    paths = [_record(tmp_path / str(n), f"run-{n}", [0.25, n]) for n in range(5)]
    rows = [line.split() for line in _show(*paths).stdout.splitlines()]
    assert ["rl.step.reward", "total", "0", "1", "2", "3", "4", "reward"] in rows


@pytest.mark.parametrize("named", [True, False])
def test_without_a_path_the_newest_run_is_shown(named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if named:
        monkeypatch.setenv("AKKA_OTEL_DIR", "~/runs")
    else:
        monkeypatch.delenv("AKKA_OTEL_DIR", raising=False)
    result = CliRunner().invoke(app, ["show"])
    assert (result.exit_code, "No run has written to" in result.stderr) == (2, True)
    _record(tmp_path / ("runs" if named else "akka-otel/run-1"), "run-1", [0.5])
    assert _show().stdout.startswith("run-1\n")


TEXTS = st.text(st.sampled_from("\x1b\x07\r\n\t\x00\x7f\x9b\u202e\u2028\ud800,=\"'[x"), max_size=6)


@settings(deadline=None, max_examples=30)
@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_no_form_commands_the_terminal(run_id: str, name: str, label: str, body: str) -> None:
    resource = {"attributes": [{"key": names.ATTR_RUN_ID.name, "value": {"stringValue": run_id}}]}
    labels = [{"key": label, "value": {"stringValue": label}}]
    metric = {"name": name, "unit": label, "gauge": {"dataPoints": [{"asDouble": 1, "attributes": labels}]}}
    record = {"severityNumber": 17, "severityText": label, "body": {"stringValue": body}}
    span = {"traceId": label, "spanId": "1", "name": name, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    document = {
        "resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [metric]}]}],
        "resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}],
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}],
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        path.write_text(json.dumps(document))
        for arguments in ([path], [path, "--json"], [path, "--csv"], [path, path]):
            shown = _show(*arguments)
            assert not COMMANDS & set(shown.stdout + shown.stderr), arguments
        (run,) = json.loads(_show(path, "--json").stdout)["runs"]
        assert run["processes"][0]["series"][0]["metric"] == name
        (row,) = csv.DictReader(io.StringIO(_show(path, "--csv").stdout))
        assert row["value"] == "1"
