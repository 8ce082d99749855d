"""Times the updates of a supervised trainer, which logs no time of its own.

An update takes from the first use of a batch to the log of the update: input is left out, and so are validation and
checkpoints, which follow the log.
"""

from __future__ import annotations

import time

from akka_otel_callbacks.common.patching.calls import Call, before
from akka_otel_callbacks.verl.state import STATE

FIRST_CALL = "_get_batch_seqlens"
"""The method that both supervised trainers call first with a batch that they fetched."""


def install(trainer: type) -> None:
    before(trainer, FIRST_CALL, _begin)


def end_update() -> float | None:
    """Seconds since the update began. None if its begin was not seen."""
    began, STATE.update_began = STATE.update_began, None
    return None if began is None else time.perf_counter() - began


def _begin(first_call: Call) -> None:
    STATE.update_began = time.perf_counter()
