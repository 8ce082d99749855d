"""Finds, among the calling functions, objects that verl does not hand to any hook.

No hook can hand them over. verl's programs run as `__main__`, where no import hook sees their classes, and neither
their configuration nor their trainer is an argument of what is hooked: `ray.init`, an actor's and a worker's
constructor, `Tracking`. A function that has the configuration in 0.9 is unknown to earlier versions and to other
programs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from akka_otel_callbacks.common.frames import variables
from akka_otel_callbacks.verl.config import backends, get

LAUNCHER = "run_ppo"
"""verl's function that starts a training."""


def calling_config() -> Any:
    """verl's configuration. None where nobody has one."""
    return next((config for config in _candidates() if _has_loggers(config)), None)


def calling_objects() -> Iterator[Any]:
    """The objects whose methods are being called, the innermost first."""
    return (called["self"] for called in variables("self"))


def calling_trainer(method: str) -> Any | None:
    """The innermost object with a method of that name, among those whose methods are being called. None without one."""
    return next((found for found in calling_objects() if hasattr(found, method)), None)


def is_called_by_launcher() -> bool:
    """Whether the launcher calls this itself, with none of verl's modules in between. With verl in between, the
    launcher is a user's own that trains right there, and what verl makes for it are workers."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != LAUNCHER:
        if str(frame.f_globals.get("__name__")).startswith("verl."):
            return False
        frame = frame.f_back
    return frame is not None


def _candidates() -> Iterator[Any]:
    """Whatever is called `config` in the calling functions, and in the objects that these are methods of."""
    for found in variables("config", "self"):
        yield found.get("config")
        yield _attributes(found.get("self")).get("config")


def _attributes(instance: Any) -> dict[str, Any]:
    """An object's own attributes, without asking the object."""
    try:
        found = object.__getattribute__(instance, "__dict__")
    except Exception:  # noqa: BLE001 - a class may have a property of that name
        return {}
    return found if type(found) is dict else {}


def _has_loggers(config: Any) -> bool:
    try:
        return bool(backends(get(config, "trainer.logger")))
    except Exception:  # noqa: BLE001 - OmegaConf raises for a value that cannot be worked out
        return False
