"""Adds the backend `akka_otel` to verl's `Tracking`, for every trainer's `trainer.logger`."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.patching.calls import Call, after, around
from akka_otel_callbacks.common.switches import EVERYTHING, is_off
from akka_otel_callbacks.common.threads import OURS, is_ours
from akka_otel_callbacks.verl import plugin
from akka_otel_callbacks.verl.config import LOGGER, backends, plain
from akka_otel_callbacks.verl.state import STATE

if TYPE_CHECKING:
    from akka_otel_callbacks.verl.driver.backend import Backend

TRAINERS = ("RayPPOTrainer", "OneStepOffRayTrainer", "SFTTrainer")


def install(tracking: ModuleType) -> None:
    """Adds the backend. Every trainer makes one `Tracking`, in the one process that logs. The class is changed in
    place, so that all of verl's modules that imported it have the change."""
    target = tracking.Tracking
    if LOGGER not in target.supported_backend:
        target.supported_backend = [*target.supported_backend, LOGGER]
    after(target, "__init__", _open)
    around(target, "finish" if hasattr(target, "finish") else "__del__", _close_after)


def install_fit(ray_trainer: ModuleType) -> None:
    """Ends the run at the end of `fit`, because these trainers never finish their `Tracking`. On a cluster that was
    there before the run Ray kills their process when the driver goes, and neither `__del__` nor an exit handler runs.
    In a notebook a trainer that failed lives on in its traceback."""
    for name in TRAINERS:
        if hasattr(ray_trainer, name):
            around(getattr(ray_trainer, name), "fit", _end_after)


def _open(init: Call) -> None:
    """Opens the run. A second `Tracking` of the process, such as one for validations, logs to the same run."""
    arguments = init.bound().arguments
    if LOGGER not in backends(arguments.get("default_backend")) or is_off(EVERYTHING, os.environ):
        return
    from akka_otel_callbacks.verl.driver import batches
    from akka_otel_callbacks.verl.driver.backend import Backend

    if not STATE.backends:
        guarded(batches.install_main_trainer)()
        plugin.warn_of_failed()
        STATE.backends[Backend(plain(arguments.get("config")))] = weakref.WeakSet()
    (backend,) = STATE.backends
    STATE.backends[backend].add(init.owner)
    init.owner.logger[LOGGER] = backend


def _close_after(
    finish: Call,
    exit_begun: Callable[[], bool] = sys.is_finalizing,  # at the exit a module may lose its names
    current: Callable[[], Any] = sys.exc_info,
) -> Iterator[None]:
    failed = (finish.get(1, "exit_code") or 0) != 0
    error = current()[1] if failed else None  # verl finishes in a `finally`
    yield
    if not exit_begun():  # the handlers of the exit, which come before, have ended what was open
        _close(finish.owner, error)


def _end_after(fit: Call) -> Iterator[None]:
    yield
    end_all(fit.error)


def end_all(error: BaseException | None) -> None:
    """Ends what is open in this process: v0's `fit` keeps its `Tracking` to itself."""
    for backend in list(STATE.backends):
        _end(backend, error)


def _close(tracking: Any, error: BaseException | None) -> None:
    loggers = getattr(tracking, "logger", None)
    backend: Any = loggers.get(LOGGER) if isinstance(loggers, dict) else None  # a subclass may call anything so
    users = STATE.backends.get(backend)
    if users is None:
        return
    users.discard(tracking)
    if not users and is_ours():  # it was garbage, and the end waits for the thread that found it
        threading.Thread(target=_end, args=(backend, error), name=f"{OURS}end").start()
    elif not users:
        _end(backend, error)


def _end(backend: Backend, error: BaseException | None) -> None:
    STATE.backends.pop(backend, None)
    backend.finish(error)
