from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.gpu import nvml
from akka_otel_callbacks.common.log import logger
from tests.fake_nvml import FakeDriver, build, load


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        pytest.skip(f"no C compiler ({compiler}) to build the fake libnvidia-ml.so.1 with")
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def loaded_driver(fake_library: Path) -> FakeDriver:
    """The fake, loaded into this process. There is one for the session: nvidia-ml-py loads its library once."""
    driver = FakeDriver(fake_library, fake_library.with_name("this-process"))
    load(fake_library, driver.path)
    return driver


@pytest.fixture
def driver(loaded_driver: FakeDriver) -> Iterator[FakeDriver]:
    """A machine without GPUs behind the real nvidia-ml-py; the test adds some."""
    loaded_driver.reset()
    yield loaded_driver
    loaded_driver.heal()


@pytest.fixture
def other_driver(fake_library: Path, tmp_path: Path) -> Iterator[FakeDriver]:
    """The same for a child process, which is started with `other_driver.environment`."""
    driver = FakeDriver(fake_library, tmp_path / "child")
    yield driver
    driver.heal()


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Every cause is unsaid, nothing was kept from training, and the package's lines reach caplog."""
    monkeypatch.setattr(nvml, "_said", set())
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.DEBUG, logger=logger.name)  # and forgets which levels an earlier test had switched off
    guard.failures.clear()
    yield
    assert not guard.failures, f"a guarded function raised: {dict(guard.failures)}"
