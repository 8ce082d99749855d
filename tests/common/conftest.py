from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary.step import RLStep

settings.register_profile("no deadline", deadline=None)  # what a busy machine makes of a test says nothing of it
settings.load_profile("no deadline")

SPEAKS_OF_TELEMETRY = ("OTEL_", "AKKA_", "TRACE", "K8S_", "POD_", "NODE_", "TORCHELASTIC_")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A process environment that says nothing of telemetry, in an empty folder; a test sets what it needs."""
    for name in list(os.environ):
        if name.startswith(SPEAKS_OF_TELEMETRY):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.fixture
def start(environment: pytest.MonkeyPatch) -> Iterator[Callable[..., Telemetry]]:
    """Starts telemetry as an engine would; whatever a test leaves open is closed."""
    opened: list[Telemetry] = []

    def open_one(step_type: Any = RLStep, run_id: str = "run", **options: Any) -> Telemetry:
        opened.append(Telemetry.start(identify(os.environ, engine={}, run_id=run_id), step_type, **options))
        return opened[-1]

    yield open_one
    for telemetry in opened:
        telemetry.close()


@pytest.fixture
def failures() -> Iterator[Any]:
    """What was kept from the training, counted from zero."""
    before = guard.failures.copy()
    guard.failures.clear()
    yield guard.failures
    guard.failures.clear()
    guard.failures.update(before)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Everything that the package logs, from info upwards, of all threads."""
    caplog.set_level(logging.INFO, logger=logger.name)
    return caplog
