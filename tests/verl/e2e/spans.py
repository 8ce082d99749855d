"""Has every worker process of a job do a checkpoint operation of its own, as a user's code might.

verl loads it with `VERL_USE_EXTERNAL_MODULES` in all of its processes.
"""

from __future__ import annotations

import threading
import time

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.common.run import current

OPERATION = "materialize"


def _materialize() -> None:
    while (telemetry := current.current()) is None:
        time.sleep(0.1)
    if not telemetry.reports_steps:  # a worker
        with checkpoints.materialize(telemetry=telemetry):
            pass


threading.Thread(target=_materialize, daemon=True).start()
