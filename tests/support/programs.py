"""Real programs that tests start: those that `make programs` fetched, or those of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FETCHED = Path(__file__).resolve().parents[2] / ".programs" / "bin"


def program(name: str) -> str:
    """The path of a program, such as `prometheus`, `promtool`, `victoria-metrics` or `chromium`.

    Without it the test is skipped. It fails where the variable `REQUIRE_PROGRAMS` is set, as on CI, so that nobody
    takes tests that never ran for tests that passed.
    """
    found = shutil.which(name, path=f"{FETCHED}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found is None:
        missing = f"{name} is not here: `make programs` fetches it from Debian"
        pytest.fail(missing) if os.environ.get("REQUIRE_PROGRAMS") else pytest.skip(missing)
    return found
