"""Python programs of their own process, for what a test cannot do to itself: end, fork, run out of disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELUDE = """
import json, os, signal, sys, time
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.common.telemetry import Telemetry
from tests.common.reports import Report, grpo_step

def start(**options):
    return Telemetry.start(identify(os.environ, engine={}, run_id="run"), RLStep, **options)
"""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with the package and the tests on the path."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, **variables}


def run(
    source: str, variables: Mapping[str, str], cwd: Path, *, prelude: str = PRELUDE, timeout_s: float = 60
) -> subprocess.CompletedProcess:
    """Runs `source` after the prelude to its end."""
    return subprocess.run(
        [sys.executable, "-c", prelude + source],
        env=environment(variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def reported(done: subprocess.CompletedProcess) -> Any:
    """What a program that ended well printed, as JSON."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
