"""Keeps the telemetry's exceptions away from the training: every function that an engine calls is `guarded`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from akka_otel_callbacks.common.log import logger

P = ParamSpec("P")
R = TypeVar("R")

failures: Counter[tuple[str, str]] = Counter()
"""How often each (function, exception type) failed since the process started. The training saw none of them."""


def report(where: str, error: Exception) -> None:
    """Counts a failure. Only the first failure of each cause is logged, with its traceback, to keep the log short."""
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
    """The function, except that it reports an exception and returns None.

    KeyboardInterrupt and SystemExit pass, because the user wants them and the telemetry did not fail.
    """
    where = function.__qualname__

    @functools.wraps(function)
    def safe(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - nothing may reach the training
            report(where, error)
            return None

    return safe
