"""A training within a host: its data, the command that runs it, and what its two records of the run say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.reading import Reader, Series, Session, files
from akka_otel_callbacks.reading.histogram import Histogram

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
STEPS = 4
ROLLOUTS = 8
"""Of a step: what every host's configuration here comes to."""
LOG = "AKKA_TEST_HOST_LOG"
"""The variable that names the file to which `rows.Rows` writes the host's log rows."""


def needs(host: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(host) is None, reason=f"{host} has an environment of its own: make test-hosts")


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@dataclass
class HostRun:
    """What a training left: the host's own log rows, and the figures in the embedded file."""

    rows: list[dict[str, Any]]
    session: Session
    said: str
    """On stdout and stderr."""

    def logged(self, key: str) -> list[float]:
        return [row[key] for row in self.rows if key in row]

    def published(self, metric: Any, *labels: str) -> list[float]:
        """A series' values, step after step."""
        found = self._of(metric, labels)
        return [*found.values] if found else []

    def distribution(self, metric: Any, *labels: str) -> Histogram | None:
        found = self._of(metric, labels)
        return found.histogram if found else None

    def _of(self, metric: Any, labels: tuple[str, ...]) -> Series | None:
        found = [series for series in self.session.of(metric) if _values(series) == labels]
        assert len(found) <= 1
        return found[0] if found else None

    def names_like(self, counter: Any) -> list[str]:
        """The metrics of the loop whose steps the counter counts."""
        loop = counter.name.removesuffix("step.count")
        return [key.name for key in self.session.series if key.name.startswith(loop)]

    @property
    def method(self) -> str | None:
        return self.session.resource.get(names.ATTR_RUN_METHOD.name)


def _values(series: Series) -> tuple[str, ...]:
    return tuple(value for _, value in series.labels)


def run(command: Sequence[str], folder: Path, **variables: str) -> HostRun:
    """Runs the host in a folder of its own, without hub, network, accelerator or collector."""
    log, telemetry = folder / "log.jsonl", folder / "telemetry"
    environ = os.environ | {
        "AKKA_OTEL_DIR": str(telemetry),
        LOG: str(log),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "examples" / "hosts", HERE, ROOT))),
        **variables,
    }
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    reader = Reader(files(telemetry))
    (session,) = [session for run in reader.read() for session in run.sessions]
    assert sum(source.unreadable for source in reader.sources.values()) == 0
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return HostRun([row for row in rows if "loss" in row], session, done.stdout + done.stderr)


def program(name: str) -> str:
    """A console script of the environment that the tests run in."""
    return str(Path(sys.executable).with_name(name))


def model(folder: Path) -> str:
    return tiny.save(folder / "model")
