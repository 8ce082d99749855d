"""`akka-otel report`: where the page goes, and what is said where there is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from tests.report.recordings import record, recording


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def runs_of(page: Path) -> list[str]:
    data = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    return [run["name"] for run in json.loads(data)["runs"]]


def test_the_page_lies_beside_the_figures(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", 3)
    result = report(folder)
    assert (result.exit_code, result.stdout) == (0, f"The page is {folder / 'report.html'}\n")
    assert runs_of(folder / "report.html") == ["run-1"]


def test_of_a_folder_of_runs_it_shows_the_newest(tmp_path: Path) -> None:
    for run_id in ("old", "new"):
        record(tmp_path / run_id, 3, run_id=run_id)
    result = report(tmp_path)
    assert result.exit_code == 0
    assert "This is the newest, new." in result.stdout
    assert runs_of(tmp_path / "new" / "report.html") == ["new"]


def test_of_a_collectors_file_it_shows_the_newest_training(tmp_path: Path) -> None:
    """Other services may have written to it since."""
    runs = (record(tmp_path / name, steps, run_id=name) for name, steps in (("new", 5), ("old", 3)))
    lines = [(run / "metrics.jsonl").read_text() for run in runs]
    judge = {"attributes": [{"key": "service.name", "value": {"stringValue": "judge"}}]}
    points = [{"timeUnixNano": str(1_900_000_000 * 10**9), "asDouble": 1.0}]
    metrics = [{"name": "gen_ai.server.request.duration", "gauge": {"dataPoints": points}}]
    lines.append(json.dumps({"resourceMetrics": [{"resource": judge, "scopeMetrics": [{"metrics": metrics}]}]}))
    (tmp_path / "collected.json").write_text("".join(lines))
    result = report(tmp_path / "collected.json", "-o", tmp_path / "page.html")
    assert runs_of(tmp_path / "page.html") == ["new"]
    assert "2 other runs in the same files: show --all shows them, too.\n" in result.stdout


def test_without_a_path_it_shows_the_newest_run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AKKA_OTEL_DIR", raising=False)
    for run_id in ("old", "new"):
        record(tmp_path / "akka-otel" / run_id, 3, run_id=run_id)
    assert report().exit_code == 0
    assert runs_of(tmp_path / "akka-otel" / "new" / "report.html") == ["new"]
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path / "elsewhere"))
    result = report()
    assert result.exit_code == 2
    assert "elsewhere here. Name the folder or the file of one." in result.stderr


def test_several_runs_make_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = report(*(record(tmp_path / name, 3, run_id=name) for name in ("one", "other")))
    assert (result.exit_code, result.stdout) == (0, "The page is akka-otel-report.html\n")
    assert runs_of(tmp_path / "akka-otel-report.html") == ["one", "other"]


def test_it_goes_where_the_user_says(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", 3)
    assert report(folder / "metrics.jsonl", "-o", tmp_path / "page.html").exit_code == 0
    assert runs_of(tmp_path / "page.html") == ["run-1"]
    result = report(folder, "--output", tmp_path / "no" / "page.html")
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory. --output names another file." in result.stderr


def test_a_run_without_figures_yet_has_no_page(tmp_path: Path) -> None:
    with recording(tmp_path):
        pass
    (tmp_path / "metrics.jsonl").touch()
    result = report(tmp_path)
    assert result.exit_code == 1
    assert "holds no figures yet" in result.stderr
    assert not (tmp_path / "report.html").exists()


def test_what_is_no_telemetry_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no telemetry\n")
    assert report(tmp_path / "notes.txt").exit_code == 1
    assert report(tmp_path / "nowhere").exit_code == 2
