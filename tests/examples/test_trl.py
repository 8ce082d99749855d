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
