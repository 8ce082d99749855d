"""The one door between an engine and the telemetry: whatever fails behind it never reaches the training."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from akka_otel_callbacks.common.log import logger

P = ParamSpec("P")
R = TypeVar("R")

failures: Counter[tuple[str, str]] = Counter()
"""How often each cause, (where, exception type), was kept from the training since the process started."""


def report(where: str, error: Exception) -> None:
    """Counts a failure; the first of each cause is logged with its traceback, so that a log is never flooded."""
    cause = (where, type(error).__name__)
    failures[cause] += 1
    if failures[cause] == 1:
        logger.warning(
            "telemetry failed in %s and goes on without it (training is not affected; further failures of this kind "
            "are counted, not logged): %s",
            where,
            error,
            exc_info=error,
        )


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """`function`, except that an exception is reported and `None` returned.

    KeyboardInterrupt and SystemExit pass: they are the user's, not a fault of the telemetry.
    """
    where = function.__qualname__

    @functools.wraps(function)
    def door(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the door's purpose
            report(where, error)
            return None

    return door
