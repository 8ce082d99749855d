"""What must happen in a forked child, which has its parent's objects and none of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod


def call_in_children(method: WeakMethod[Callable[[], object]]) -> None:
    """Has every child that is forked from now on call the method first, as long as its object lives."""

    def in_child() -> None:
        if (call := method()) is not None:
            call()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)
