"""The examples run as they stand, and publish."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink

EXAMPLES = Path(__file__).parents[2] / "examples" / "trl"

pytest.importorskip("trl", reason="the examples train with TRL")


@pytest.mark.parametrize(
    ("example", "published"),
    [
        ("grpo.py", {names.RL_STEP_COUNT: 10, names.RL_STEP_ROLLOUTS: 8}),
        ("sft.py", {names.SFT_STEP_COUNT: 10}),
    ],
)
def test_an_example_publishes_its_steps(tmp_path: Path, example: str, published: dict) -> None:
    with otlp_sink() as sink:
        environ = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, str(EXAMPLES / example)]
        result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert {metric: sink.latest(metric).value for metric in published} == published
    assert list(tmp_path.iterdir()) == []  # everything went to the collector


def test_the_example_with_a_judge_asks_it_about_every_rollout(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="the judge is a real server")
    from tests.support.judge_server import judge_server

    with otlp_sink() as sink, judge_server() as judge:
        environ = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http, "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, str(EXAMPLES / "judge.py"), judge.url, "org/judge-4b"]
        result = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    durations = [point for point in sink.metrics() if point.name == names.RL_GRADER_DURATION.name]
    counts = {
        point.attributes[names.ATTR_RL_TERM.name]: point.histogram.count for point in durations if point.histogram
    }
    assert counts == {"rule:brevity.py": 40, "model:judge-4b": 40}
    assert len(judge.asked) == 40
