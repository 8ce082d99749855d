"""Each test finds a process that verl has not called yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from akka_otel_callbacks.verl.state import STATE


@pytest.fixture(autouse=True)
def _a_process_without_a_run() -> Iterator[None]:
    STATE.reset()
    yield
    STATE.reset()
