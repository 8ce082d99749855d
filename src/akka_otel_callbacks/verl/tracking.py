"""Adds the backend `akka_otel` to verl's `Tracking`, for every trainer's `trainer.logger`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl import plugin
from akka_otel_callbacks.verl.environment import LOGGER
from akka_otel_callbacks.verl.importhook import wrap


def install(tracking: ModuleType) -> None:
    """Every trainer makes one `Tracking`, in the one process that logs. The class is changed in place, so that the
    copies of its name in verl's modules are changed, too."""
    target = tracking.Tracking
    if LOGGER not in target.supported_backend:
        target.supported_backend = [*target.supported_backend, LOGGER]
    wrap(target, "__init__", _opening)
    wrap(target, "finish" if hasattr(target, "finish") else "__del__", _closing)


def _opening(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _open(self, signature.bind(self, *args, **kwargs).arguments)

    return __init__


@guarded
def _open(tracking: Any, arguments: Mapping[str, Any]) -> None:
    asked = arguments.get("default_backend", ())
    if LOGGER in ([asked] if isinstance(asked, str) else asked):
        from akka_otel_callbacks.verl.backend import Backend

        plugin.warn_of_failed()
        tracking.logger[LOGGER] = Backend(arguments.get("config"))


def _closing(finish: Callable[..., None]) -> Callable[..., None]:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        failed = kwargs.get("exit_code", args[0] if args else 0) != 0
        error = sys.exc_info()[1] if failed else None  # verl finishes in a `finally`
        try:
            finish(self, *args, **kwargs)
        finally:
            backend = getattr(self, "logger", {}).get(LOGGER)
            if backend is not None:
                backend.finish(error)

    return wrapped
