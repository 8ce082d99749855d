"""The console exporter, on a stdout that is read, redirected, closed, or read by nobody any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from akka_otel_callbacks.common.export.console import Stdout
from akka_otel_callbacks.common.vocabulary import names
from tests.common.scripts import PRELUDE, environment

CONSOLE = {
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_TRACES_EXPORTER": "console",
    "OTEL_METRIC_EXPORT_INTERVAL": "50",
}
TRAINING = """
print("before", flush=True)
from akka_otel_callbacks.common.vocabulary import names
telemetry = start()
for number in range(1, 21):
    telemetry.capture(Report(grpo_step(number)), step=True)
    telemetry.span(names.SPAN_JOB, 1, 2)
    telemetry.flush(5)
telemetry.close()
sys.stderr.write("trained on\\n")
"""


def test_a_reader_that_is_gone_costs_one_line_and_not_the_exit_code(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + TRAINING],
        env=environment(CONSOLE),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read().decode()
    assert process.wait(60) == 0, stderr
    assert "trained on" in stderr
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    assert 1 <= stderr.count("stdout cannot be written") <= 2, "one line a signal"


def test_figures_and_the_program_s_own_lines_stay_in_order(tmp_path: Path) -> None:
    script = PRELUDE + TRAINING.replace(", flush=True", "") + "print('after')"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(CONSOLE),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("before\n")
    assert done.stdout.endswith("after\n")
    assert names.RL_STEP_REWARD.name in done.stdout


def test_a_stdout_that_is_put_in_its_place_gets_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    out = Stdout()
    out.write("one\n")
    assert capsys.readouterr().out == "one\n"


def test_one_that_is_closed_or_missing_is_no_error(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    out = Stdout()
    with open("/dev/null", "w") as closed:
        pass
    for stream in (None, closed, closed):
        monkeypatch.setattr(sys, "stdout", stream)
        assert out.write("figures") == 7
    assert len(log.records) == 1
