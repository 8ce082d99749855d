"""Makes every guarded function of the telemetry fail, in turn before and after its work, in every process of a job.

verl loads it ahead of the plugin with `VERL_USE_EXTERNAL_MODULES`. `FAULTS` names the file that gets a line for each
failure.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

from akka_otel_callbacks.common import guard

FAULTS = "AKKA_OTEL_TEST_FAULTS"


class InjectedError(Exception):
    pass


def faulty(function: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count()

    @functools.wraps(function)
    def failing(*args: Any, **kwargs: Any) -> Any:
        with open(os.environ[FAULTS], "a") as faults:
            faults.write(f"{function.__module__.rpartition('.')[2]}:{function.__qualname__}\n")
        if next(calls) % 2 == 0:
            function(*args, **kwargs)
        raise InjectedError(function.__qualname__)

    return failing


def setup_hook() -> None:
    """For Ray: imports the package's own hook only now, when its functions are made to fail."""
    from akka_otel_callbacks.verl.worker import setup_hook

    setup_hook()


guard.guarded = functools.wraps(guard.guarded)(lambda function, guarded=guard.guarded: guarded(faulty(function)))
