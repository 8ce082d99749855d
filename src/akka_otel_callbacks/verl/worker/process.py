"""Notices verl's workers, and has the process publish where it runs and which GPU it holds.

More processes of verl load the workers' classes than make a worker: `companion`, which publishes, is loaded by those.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.calls import Call, after
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.state import STATE


def install(worker: ModuleType) -> None:
    """Notices the workers of this process. verl makes several in one: the Ray actor and, inside it, one per role."""
    after(worker.Worker, "__init__", _notice)


def flush(worker: Any, timeout_s: float) -> bool:
    """Exports what this process has; false where it has nothing or did not finish in time. The driver has Ray call it
    in the worker at the end of the run, after which Ray kills it: nobody is to scrape it any more."""
    if STATE.worker is None:
        return False
    from akka_otel_callbacks.common.export.address_files import withdraw_all

    flushed = STATE.worker.flush(timeout_s)
    withdraw_all()
    return flushed


def _notice(init: Call) -> None:
    """The first worker of a process is the outermost one; those that it makes change nothing."""
    if STATE.worker is not None:
        return
    from akka_otel_callbacks.verl.callers import calling_config
    from akka_otel_callbacks.verl.config import asks

    config = None if is_active() else calling_config()
    if is_active() or asks(config):
        from akka_otel_callbacks.verl.worker.companion import companion

        STATE.worker = companion(init.owner, config)
