"""One attempt for all processes of torchrun, which have no driver: rank 0 tells the others through the process group's
store.

This is no collective: a rank reads and writes the store alone. It runs on a thread that is not the trainer's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akka_otel_callbacks.common.run.attempt import Attempt

KEY = "akka_otel_run_id"
POLL_S = 0.5
PATIENCE_S = 120.0
"""Rank 0 may be slow to start. If it has told nothing by then, it is assumed not to publish at all."""


def share(attempt: Attempt, key: str = KEY, trace: Mapping[str, str] = MappingProxyType({})) -> None:
    """Tells the other ranks the attempt. Rank 0 calls it.

    Args:
        attempt: the job's run and attempt.
        key: a different one for each further training of the same processes.
        trace: the job's span, as `TRACEPARENT` and `TRACESTATE`.
    """
    store = _store()
    if store is not None:
        store.set(_of_trace(key), json.dumps(dict(trace)))  # first: who has the attempt may ask for it
        store.set(key, attempt.to_json())


def shared(key: str = KEY) -> Attempt | None:
    """Waits until rank 0 tells the attempt. None if it tells nothing in time.

    Args:
        key: the one that rank 0 used.
    """
    from akka_otel_callbacks.common.run.attempt import Attempt

    store = _store()
    # Never `get` before the key is there: it would wait inside the store's lock, which the trainer also needs.
    deadline = time.monotonic() + PATIENCE_S
    while store is not None and time.monotonic() < deadline:
        if store.check([key]):
            return Attempt.from_json(store.get(key))
        time.sleep(POLL_S)
    return None


def shared_trace(key: str = KEY) -> dict[str, str]:
    """The job's span that rank 0 told with the attempt. Empty if it told none. Call it after `shared`.

    Args:
        key: the one that rank 0 used.
    """
    store = _store()
    if store is None or not store.check([_of_trace(key)]):
        return {}
    told = json.loads(store.get(_of_trace(key)))
    return {name: str(value) for name, value in told.items()}


def _of_trace(key: str) -> str:
    return f"{key}_trace"


def _store() -> Any:
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
