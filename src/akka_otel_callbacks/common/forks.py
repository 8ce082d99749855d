"""What must happen in a forked child, which has its parent's objects and none of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod

Method = WeakMethod[Callable[[], object]]
"""A method that is called as long as its object lives."""


def call_in_children(method: Method) -> None:
    """Has every child that is forked from now on call the method first."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_calling(method))


def call_around_forks(before: Method, in_parent: Method, in_child: Method) -> None:
    """Has this process call a method before each fork from now on and one after it, and the child another one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_calling(before), after_in_parent=_calling(in_parent), after_in_child=_calling(in_child)
        )


def _calling(method: Method) -> Callable[[], None]:
    def call() -> None:
        if (bound := method()) is not None:
            bound()

    return call
