"""Adds the backend `akka_otel` to verl's `Tracking`, for every trainer's `trainer.logger`."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl import plugin
from akka_otel_callbacks.verl.config import LOGGER, backends
from akka_otel_callbacks.verl.environment import is_disabled
from akka_otel_callbacks.verl.patching.importhook import wrap

if TYPE_CHECKING:
    from akka_otel_callbacks.verl.driver.backend import Backend

_open_ones: dict[Backend, weakref.WeakSet[Any]] = {}
"""What is open in this process, with those of verl's `Tracking` that log to it and are not finished."""
TRAINERS = ("RayPPOTrainer", "OneStepOffRayTrainer", "SFTTrainer")


def install(tracking: ModuleType) -> None:
    """Every trainer makes one `Tracking`, in the one process that logs. The class is changed in place, so that the
    copies of its name in verl's modules are changed, too."""
    target = tracking.Tracking
    if LOGGER not in target.supported_backend:
        target.supported_backend = [*target.supported_backend, LOGGER]
    wrap(target, "__init__", _opening)
    wrap(target, "finish" if hasattr(target, "finish") else "__del__", _closing)


def install_fit(ray_trainer: ModuleType) -> None:
    """These trainers never finish their `Tracking`. Where the cluster was there before the run, Ray kills their process
    when the driver goes: no `__del__`, no exit handler; and in a notebook a failed one lives on in its traceback. The
    end of `fit` is the end of the run."""
    for name in TRAINERS:
        if hasattr(ray_trainer, name):
            wrap(getattr(ray_trainer, name), "fit", _ending)


def _opening(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _open(self, signature.bind(self, *args, **kwargs).arguments)

    return __init__


@guarded
def _open(tracking: Any, arguments: Mapping[str, Any]) -> None:
    """A second `Tracking` of the process, such as one for validations, logs to the same run."""
    if LOGGER not in backends(arguments.get("default_backend")) or is_disabled():
        return
    from akka_otel_callbacks.verl.driver import batches
    from akka_otel_callbacks.verl.driver.backend import Backend

    if not _open_ones:
        guarded(batches.install_main_trainer)()
        plugin.warn_of_failed()
        _open_ones[Backend(arguments.get("config"))] = weakref.WeakSet()
    (backend,) = _open_ones
    _open_ones[backend].add(tracking)
    tracking.logger[LOGGER] = backend


def _closing(finish: Callable[..., None]) -> Callable[..., None]:
    close, exit_begun, current = _close, sys.is_finalizing, sys.exc_info  # a module may lose its names at the exit

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        failed = kwargs.get("exit_code", args[0] if args else 0) != 0
        error = current()[1] if failed else None  # verl finishes in a `finally`
        try:
            finish(self, *args, **kwargs)
        finally:
            if not exit_begun():  # the handlers of the exit, which come before, have ended what was open
                close(self, error)

    return wrapped


def _ending(fit: Callable[..., Any]) -> Callable[..., Any]:
    async def ended_later(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _closed_after():
            return await fit(self, *args, **kwargs)

    def ended(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _closed_after():
            return fit(self, *args, **kwargs)

    return ended_later if inspect.iscoroutinefunction(fit) else ended


@contextmanager
def _closed_after() -> Iterator[None]:
    """Ends what is open in this process: v0's `fit` keeps its `Tracking` to itself."""
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        for backend in list(_open_ones):
            _end(backend, error)


@guarded
def _close(tracking: Any, error: BaseException | None) -> None:
    loggers = getattr(tracking, "logger", None)
    backend: Any = loggers.get(LOGGER) if isinstance(loggers, dict) else None  # a subclass may call anything so
    users = _open_ones.get(backend)
    if users is not None:
        users.discard(tracking)
        if not users:
            _end(backend, error)


@guarded
def _end(backend: Backend, error: BaseException | None) -> None:
    _open_ones.pop(backend, None)
    backend.finish(error)
