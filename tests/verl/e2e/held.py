"""Has the driver of a job wait after its last step until the test has looked at it.

verl loads it with `VERL_USE_EXTERNAL_MODULES`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType

from akka_otel_callbacks.common.patching.calls import Call, after
from akka_otel_callbacks.common.patching.imports import after_import

FOLDER, STEP = "HELD_FOLDER", "HELD_AFTER_STEP"
LONGEST_S = 300.0


def is_held(folder: Path) -> bool:
    """Whether the job waits."""
    return (folder / "held").exists()


def release(folder: Path) -> None:
    """Has the job go on."""
    (folder / "released").touch()


def _install(tracking: ModuleType) -> None:
    after(tracking.Tracking, "log", _hold)


def _hold(log: Call) -> None:
    if log.bound().arguments.get("step") != int(os.environ[STEP]):
        return
    folder, deadline = Path(os.environ[FOLDER]), time.monotonic() + LONGEST_S
    (folder / "held").touch()
    while not (folder / "released").exists() and time.monotonic() < deadline:
        time.sleep(0.1)


if FOLDER in os.environ:
    after_import({"verl.utils.tracking": _install})
