"""One run ID for the processes of torchrun, which have no driver: rank 0's, through the store of the process group.

A store is asked and answered without the other ranks' taking part, so this is no collective. It is used from a thread
that is not the trainer's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

KEY = "akka_otel_run_id"
POLL_S = 0.5
PATIENCE_S = 120.0
"""Rank 0 may be slow to start; later than this it is taken not to publish at all."""


def agree(rank: int, run_id: Callable[[], str], key: str = KEY) -> str | None:
    """The run ID of all ranks; None where rank 0 tells none.

    Args:
        rank: this process's.
        run_id: gives the ID in rank 0, or whatever else is agreed on.
        key: another one for each further agreement of the same processes.
    """
    store = _store()
    if rank == 0:
        if store is not None:
            store.set(key, run_id())
        return run_id()
    # Never `get` before the key is there: it would wait inside the store's lock, which the trainer also needs.
    deadline = time.monotonic() + PATIENCE_S
    while store is not None and time.monotonic() < deadline:
        if store.check([key]):
            return str(store.get(key).decode())
        time.sleep(POLL_S)
    return None


def _store() -> Any:
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_store() if dist.is_initialized() else None
