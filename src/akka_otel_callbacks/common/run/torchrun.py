"""One attempt for all processes of torchrun, which have no driver: rank 0 tells it through the process group's store.

A store is asked and answered without the other ranks' taking part, so this is no collective. It is used from a thread
that is not the trainer's.
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
"""Rank 0 may be slow to start; later than this it is taken not to publish at all."""


def share(attempt: Attempt, key: str = KEY, trace: Mapping[str, str] = MappingProxyType({})) -> None:
    """Tells the other ranks. It is for rank 0.

    Args:
        attempt: of which run the job is, and which attempt.
        key: another one for each further training of the same processes.
        trace: the job's span, as `TRACEPARENT` and `TRACESTATE`.
    """
    store = _store()
    if store is not None:
        store.set(_of_trace(key), json.dumps(dict(trace)))  # first: who has the attempt may ask for it
        store.set(key, attempt.to_json())


def shared(key: str = KEY) -> Attempt | None:
    """What rank 0 told, waited for. None where it tells nothing in time.

    Args:
        key: as of `share`.
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
    """The job's span that rank 0 told with the attempt. Empty where it told none. It is for who has the attempt.

    Args:
        key: as of `share`.
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
