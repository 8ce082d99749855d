"""Reads verl's configuration, and finds it where verl hands it to nobody.

Whatever else a program calls `config` is left alone: only plain dictionaries and OmegaConf's are looked into, since any
other object may raise, or answer everything, when it is asked for an attribute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from akka_otel_callbacks.common.frames import variables

LOGGER = "akka_otel"


def get(config: Any, path: str, default: Any = None) -> Any:
    """The value at a dotted path, `default` where any part of it is missing, None or no dictionary."""
    for name in path.split("."):
        if issubclass(type(config), dict):
            config = dict.get(config, name)
        elif _is_of_omegaconf(config, "DictConfig"):
            config = config.get(name)
        else:
            return default
    return default if config is None else config


def asks(config: Any) -> bool:
    """Whether a configuration of verl names `akka_otel` among its loggers."""
    try:
        return LOGGER in backends(get(config, "trainer.logger"))
    except Exception:  # noqa: BLE001 - OmegaConf raises for a value that cannot be worked out
        return False


def backends(loggers: Any) -> list[Any]:
    """The names in `trainer.logger`, which is one name or several."""
    if isinstance(loggers, str):
        return [loggers]
    is_list = issubclass(type(loggers), (list, tuple, set, frozenset)) or _is_of_omegaconf(loggers, "ListConfig")
    return list(loggers) if is_list else []


def calling_config() -> Any:
    """verl's configuration, from the functions that are being called: verl hands it to none of the things that are
    hooked, and its programs run as `__main__`, where no import hook sees them. None where there is none."""
    return next((config for config in _candidates() if _has_loggers(config)), None)


def plain(config: Any) -> Any:
    """As `Tracking` is given it, so that both say the same of the run; OmegaConf refuses to show an unset value."""
    if isinstance(config, dict):
        return config
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config, resolve=True)


def _candidates() -> Iterator[Any]:
    """What is called `config` in the calling functions, and in the objects whose methods they are."""
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


def _is_of_omegaconf(value: Any, name: str) -> bool:
    omegaconf = sys.modules.get("omegaconf")
    return omegaconf is not None and issubclass(type(value), getattr(omegaconf, name))
