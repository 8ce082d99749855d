"""Reads verl's configuration.

Whatever else a program calls `config` is left alone: only plain dictionaries and OmegaConf's are looked into, since any
other object may raise, or answer everything, when it is asked for an attribute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

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


def plain(config: Any) -> Any:
    """The configuration as a plain dictionary, as verl gives it to `Tracking`, so that both say the same of the run.
    Without the values that OmegaConf cannot work out. None for anything that is no configuration of verl's."""
    if issubclass(type(config), dict):
        return config
    if not _is_of_omegaconf(config, "DictConfig"):
        return None
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_container(config, resolve=True)
    except Exception:  # noqa: BLE001 - a resolver of the user's may raise anything
        return dict(_worked_out(config))


def _worked_out(config: Any) -> Iterator[tuple[Any, Any]]:
    """The keys whose values can be worked out."""
    for key in config:
        with suppress(Exception):
            value = config.get(key)
            yield key, plain(value) if _is_of_omegaconf(value, "DictConfig") else value


def _is_of_omegaconf(value: Any, name: str) -> bool:
    omegaconf = sys.modules.get("omegaconf")
    return omegaconf is not None and issubclass(type(value), getattr(omegaconf, name))
