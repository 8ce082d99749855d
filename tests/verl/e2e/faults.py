"""Makes every hook and every guarded function of the telemetry fail, in turn at its begin, in its midst and after its
work, in every process of a job.

verl loads it ahead of the plugin with `VERL_USE_EXTERNAL_MODULES`. `FAULTS` names the file that gets a line for each
failure.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.patching import calls

FAULTS = "AKKA_OTEL_TEST_FAULTS"


class InjectedError(Exception):
    pass


def tell(function: Callable[..., Any]) -> None:
    with open(os.environ[FAULTS], "a") as faults:
        faults.write(f"{function.__module__.rpartition('.')[2]}:{function.__qualname__}\n")


def faulty(function: Callable[..., Any]) -> Callable[..., Any]:
    turns = itertools.cycle(["after", "begin"])

    @functools.wraps(function)
    def failing(*args: Any, **kwargs: Any) -> Any:
        tell(function)
        if next(turns) == "after":
            function(*args, **kwargs)
        raise InjectedError(function.__qualname__)

    return failing


@functools.cache
def faulty_hook(hook: calls.Hook) -> calls.Hook:
    named: Callable[..., Any] = getattr(hook, "hook", hook)
    turns = itertools.cycle(["after", "begin", "midst"])

    @functools.wraps(named)
    def failing(call: calls.Call) -> Iterator[None]:
        tell(named)
        turn, rest = next(turns), hook(call)
        if turn != "begin":
            next(rest, None)
        if turn == "after":
            yield
            next(rest, None)
        raise InjectedError(named.__qualname__)

    return failing


def setup_hook() -> None:
    """For Ray: imports the package's own hook only now, when its functions are made to fail."""
    from akka_otel_callbacks.verl.worker import setup_hook

    setup_hook()


def around(owner: Any, name: str, hook: calls.Hook, around: Callable[..., None] = calls.around, **how: Any) -> None:
    around(owner, name, faulty_hook(hook), **how)


if FAULTS in os.environ:  # a test that only reads the names here goes on without faults
    guard.guarded = functools.wraps(guard.guarded)(lambda function, guarded=guard.guarded: guarded(faulty(function)))
    calls.around = around
