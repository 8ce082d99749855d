"""Adds the backend `akka_otel` to verl's `Tracking`, for every trainer's `trainer.logger`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl import plugin
from akka_otel_callbacks.verl.environment import LOGGER
from akka_otel_callbacks.verl.importhook import wrap

if TYPE_CHECKING:
    from akka_otel_callbacks.verl.backend import Backend

_open_ones: list[Backend] = []
TRAINERS = ("RayPPOTrainer", "OneStepOffRayTrainer")


def install(tracking: ModuleType) -> None:
    """Every trainer makes one `Tracking`, in the one process that logs. The class is changed in place, so that the
    copies of its name in verl's modules are changed, too."""
    target = tracking.Tracking
    if LOGGER not in target.supported_backend:
        target.supported_backend = [*target.supported_backend, LOGGER]
    wrap(target, "__init__", _opening)
    wrap(target, "finish" if hasattr(target, "finish") else "__del__", _closing)


def install_fit(ray_trainer: ModuleType) -> None:
    """The trainers before v1 never finish their `Tracking`, and where the cluster was there before the run, Ray kills
    their process when the driver goes: no `__del__`, no exit handler. The end of `fit` is the end of the run."""
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
    asked = arguments.get("default_backend", ())
    if LOGGER in ([asked] if isinstance(asked, str) else asked):
        from akka_otel_callbacks.verl import batches
        from akka_otel_callbacks.verl.backend import Backend

        guarded(batches.install_main_trainer)()
        plugin.warn_of_failed()
        tracking.logger[LOGGER] = Backend(arguments.get("config"))
        _open_ones.append(tracking.logger[LOGGER])


def _closing(finish: Callable[..., None]) -> Callable[..., None]:
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        failed = kwargs.get("exit_code", args[0] if args else 0) != 0
        error = sys.exc_info()[1] if failed else None  # verl finishes in a `finally`
        try:
            finish(self, *args, **kwargs)
        finally:
            _close(getattr(self, "logger", {}).get(LOGGER), error)

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
            _close(backend, error)


@guarded
def _close(backend: Backend | None, error: BaseException | None) -> None:
    if backend is not None:
        _open_ones[:] = [other for other in _open_ones if other is not backend]
        backend.finish(error)
