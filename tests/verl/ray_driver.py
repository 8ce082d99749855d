"""Runs a module of the tests as a driver that starts a Ray of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def drive(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The driver, when it has ended. Nothing of this process's own telemetry reaches it."""
    with tempfile.TemporaryDirectory() as ray_directory:  # its sockets need a short path
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AKKA_"))},
            "RAY_TMPDIR": ray_directory,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_prestart_worker_first_driver": "0",
        }
        environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240)
