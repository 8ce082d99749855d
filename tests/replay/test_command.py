"""`akka-otel replay`: what it accepts and says, where the figures go, and how it ends."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.reading import Reader, files
from tests.common.scripts import reported, run
from tests.replay.replayed import FIXTURES, command, sent
from tests.support.otlp_sink import answering

CONSOLE = FIXTURES / "verl_oldest_console.log"
ENDED_S = 1_750_000_000


def state(folder: Path, numbers: Any, name: str = "trainer_state.json", **more: Any) -> Path:
    """The state of a small GRPO training."""
    rows = [{"loss": 0.5, "reward": number / 8, "reward_std": 0.25, "step": number} for number in numbers]
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"log_history": rows, "global_step": max(numbers, default=0), **more}))
    os.utime(file, (ENDED_S, ENDED_S))
    return file


def in_scratch(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.chdir(folder)


def test_into_files_that_show_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_scratch(monkeypatch, tmp_path)
    result = command(state(tmp_path / "my-run", range(1, 9), max_steps=20))
    assert result.exit_code == 0, result.output
    assert re.search(r"^my-run-[0-9a-f]{8}: 8 steps, 8 of them in the log, and 0 evaluations", result.stdout)
    assert "number 8, at 2025-06-15 15:06:40 UTC" in result.stdout
    assert "The log has no times" in result.stdout
    assert "rl.step.entropy" in result.stdout.partition("absent: ")[2]
    (folder,) = (tmp_path / "akka-otel").iterdir()
    assert f"akka-otel show akka-otel/{folder.name}" in result.stdout
    shown = CliRunner().invoke(app, ["show", str(folder)]).stdout
    assert re.search(r"rl\.step\.reward +1 +reward", shown)
    assert re.search(r"rl\.step\.count +8 ", shown)
    assert re.search(r"job\.steps\.planned +20 ", shown)


def test_a_second_replay_does_not_write_into_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_scratch(monkeypatch, tmp_path)
    file = state(tmp_path, range(1, 4))
    assert command(file).exit_code == 0
    again = command(file)
    assert again.exit_code == 2
    assert "has figures already" in again.output
    assert command(file, environ={"AKKA_OTEL_DIR": "elsewhere"}).exit_code == 0


def test_every_step_arrives_at_a_collector_with_its_time(tmp_path: Path) -> None:
    file = state(tmp_path, range(10, 3001, 10))
    with sent(file, environ={"OTEL_RESOURCE_ATTRIBUTES": "team=red,akka.optimize.training.run.id=mine"}) as (
        runs,
        result,
    ):
        (run,) = runs
        assert result.exit_code == 0, result.output
    assert run.series("rl.step.number") == [*range(10, 3001, 10)]
    assert run.series("rl.step.reward") == [number / 8 for number in range(10, 3001, 10)]
    seconds = {time_ns / 1e9 - ENDED_S: number for time_ns, number in run.numbers.items()}
    assert seconds == {float(number - 3000): number for number in range(10, 3001, 10)}
    counts = run.series("rl.step.count")
    assert counts == sorted(counts)
    assert (len(counts), counts[-1]) == (150, 3000)
    expected = {"run.id": "mine", "team": "red", "replay.format": "trainer_state", "replay.times": "assumed"}
    assert expected.items() <= run.resource.items()
    assert not {"host.name", "process.pid"} & {*run.resource}, "this machine trained nothing"


def test_the_same_log_is_the_same_run_again(tmp_path: Path) -> None:
    file = state(tmp_path, range(1, 5))
    points = []
    for _ in range(2):
        with sent(file) as (runs, _):
            points.append([(p.name, p.value, p.time_ns, p.start_ns, dict(p.resource)) for p in runs[0].points])
    assert points[0] == points[1]


def test_a_collector_that_takes_nothing_ends_it(tmp_path: Path) -> None:
    with answering(400) as url:
        result = command(state(tmp_path, range(1, 5)), environ={"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert result.exit_code == 1
    assert "Not all of it arrived" in result.output


def test_a_scrape_has_no_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_scratch(monkeypatch, tmp_path)
    result = command(state(tmp_path, range(1, 5)), environ={"OTEL_METRICS_EXPORTER": "prometheus"})
    assert result.exit_code == 0
    assert "akka-otel show" in result.stdout


def test_several_runs_of_a_console(tmp_path: Path) -> None:
    text = CONSOLE.read_text()
    file = tmp_path / "console.log"
    file.write_text(text + text)
    with sent(file) as (runs, result):
        assert "The log holds 2 runs" in result.stdout
        assert [run.series("rl.step.count") for run in runs] == [[*range(1, 10)]] * 2
        assert {run.resource["run.id"][-2:] for run in runs} == {"-1", "-2"}


def test_several_runs_of_a_log_go_to_the_folder_that_a_person_names(tmp_path: Path) -> None:
    file = tmp_path / "console.log"
    file.write_text(CONSOLE.read_text() * 2)
    environ = {"AKKA_OTEL_DIR": str(tmp_path / "there")}
    assert command(file, environ=environ).exit_code == 0
    runs = Reader(files(tmp_path / "there")).read()
    assert [(run.name[-2:], run.step) for run in runs] == [("-1", 8), ("-2", 8)]
    again = command(file, environ=environ)
    assert (again.exit_code, "has figures already" in again.stderr) == (2, True)


def test_what_stands_behind_a_dot_belongs_to_the_name_of_a_log(tmp_path: Path) -> None:
    with sent(state(tmp_path, range(1, 3), "llama-3.1-8b.trainer_state.json")) as (runs, _):
        assert runs[0].resource["run.id"].startswith("llama-3.1-8b-")


def test_a_run_that_was_restored_counts_each_step_once(tmp_path: Path) -> None:
    def rows(first: int, last: int, reward: float) -> str:
        data = {"training/global_step": 1, "critic/score/mean": reward, "timing_s/step": 2.0}
        return "".join(json.dumps({"step": step, "data": data}) + "\n" for step in range(first, last + 1))

    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(rows(1, 8, 0.25))
    two.write_text(rows(6, 10, 0.5))
    with sent(one, two) as (runs, _):
        (run,) = runs
        assert run.series("rl.step.number") == [*range(1, 11)]
        assert run.series("rl.step.reward") == [0.25] * 5 + [0.5] * 5
        assert run.series("rl.step.count")[-1] == 10
        assert run.histogram("rl.step.duration").count == 10


def test_a_folder_of_checkpoints(tmp_path: Path) -> None:
    for last in (4, 8):
        state(tmp_path / "run", range(1, last + 1), f"checkpoint-{last}/trainer_state.json")
    for place in (tmp_path / "run", tmp_path / "run" / "checkpoint-8"):
        with sent(place) as (runs, result):
            assert result.exit_code == 0, result.output
            assert runs[0].resource["run.id"].startswith("run-")
            assert runs[0].series("rl.step.number") == [*range(1, 9)]


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("trainer_state.json", '{"log_history": [], "global_step": 0}', 2, "holds no step: the run ended before"),
        ("console.log", "(TaskRunner pid=1) loading\nTraceback (most recent call last):\n", 2, "holds no step"),
        ("console.log", "", 2, "is empty: the run wrote nothing"),
        ("metrics.csv", "step,loss\n1,0.5\n", 2, "Accepted are: a TensorBoard event file; the JSONL of verl's"),
        ("state.json", '{"a": 1}', 2, "no log that can be replayed"),
    ],
)
def test_what_is_no_log_or_has_no_step(tmp_path: Path, name: str, content: str, code: int, said: str) -> None:
    file = tmp_path / name
    file.write_text(content)
    result = command(file)
    assert result.exit_code == code
    assert said in result.output
    assert "Traceback" not in result.output


def test_a_path_is_said_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("logs/run.json").stderr == "logs/run.json does not exist.\n"


def test_other_wrong_calls(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for paths, said in (
        ([tmp_path / "nowhere"], "does not exist"),
        ([tmp_path / "empty"], "has no log that can be replayed"),
        ([state(tmp_path, [1]), CONSOLE], "of one format"),
    ):
        result = command(*paths)
        assert result.exit_code == 2
        assert said in result.output


@pytest.mark.parametrize(
    ("name", "content", "metric", "label"),
    [
        ("trainer_state.json", {"log_history": [{"eval_loss": 0.5, "step": 0}]}, "sft.eval.loss", ()),
        ("trainer_state.json", {"log_history": [{"eval_reward": 0.5, "step": 0}]}, "rl.eval.reward", ()),
        ("run.jsonl", {"step": 0, "data": {"val-core/a/reward/mean@1": 0.5}}, "rl.eval.reward", ("a",)),
    ],
)
def test_a_run_that_died_before_its_first_step_says_so(
    tmp_path: Path, name: str, content: Any, metric: str, label: tuple[str, ...]
) -> None:
    file = tmp_path / name
    file.write_text(json.dumps(content))
    with sent(file) as (runs, result):
        assert result.exit_code == 0, result.output
        assert "1 evaluation, and no step: the run ended before its first one was logged" in result.stdout
        assert runs[0].series(metric, *label) == [0.5]
        assert not runs[0].names & {"rl.step.count", "sft.step.count"}


def test_a_run_that_logged_its_end_only_made_its_steps(tmp_path: Path) -> None:
    """As with `logging_strategy="no"`: what the row of the end has is a mean over the run."""
    file = tmp_path / "trainer_state.json"
    end = {"train_loss": 0.5, "train_runtime": 9.0, "reward": 1.0, "step": 40}
    file.write_text(json.dumps({"log_history": [end], "global_step": 40}))
    with sent(file) as (runs, result):
        assert "40 steps, 0 of them in the log" in result.stdout
        assert runs[0].series("rl.step.count") == [40]
        assert runs[0].series("rl.step.number") == [40]
        assert not runs[0].series("rl.step.reward")


@pytest.mark.parametrize(
    "log", [CONSOLE, FIXTURES / "sft_six_eval_sets.trainer_state.json"], ids=lambda path: path.stem
)
def test_it_loads_no_engine(log: Path, tmp_path: Path) -> None:
    source = f"""
import contextlib, io, json, sys
from pathlib import Path
from akka_otel_callbacks.cli.replay import replay
with contextlib.redirect_stdout(io.StringIO()):
    replay([Path({str(log)!r})])
print(json.dumps([name for name in ("torch", "transformers", "trl", "verl", "ray", "numpy") if name in sys.modules]))
"""
    assert reported(run(source, {}, tmp_path, prelude="")) == []
