"""Carries the run's identity, its exporter settings and its trace from verl's driver to the processes of the job.

A Ray cluster that runs already gives nothing of the driver's environment to a job's processes, so the driver hands it
to `ray.init`. The hook runs in every process of verl: its module imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from akka_otel_callbacks.verl.importhook import wrap

if TYPE_CHECKING:
    from akka_otel_callbacks.common.identity import RunIdentity

LOGGER = "akka_otel"
RUN_VARIABLE = "AKKA_OTEL_RUN"
"""Set in every process of a run that asked for `akka_otel`: the run's identity, written as OTEL_RESOURCE_ATTRIBUTES."""

PREFIXES = ("OTEL_", "AKKA_")
TRACE = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
SUPERSEDED = ("OTEL_RESOURCE_ATTRIBUTES", RUN_VARIABLE)
"""The identity has what the first one says; where it stands in a worker's own environment, it says where that is."""
OWN = ("k8s.", "host.", "process.", "container.", "service.instance.")
"""How attributes begin that are true of one process only, or of one pod or node. They are never handed on."""

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where `ray job submit` puts the job's runtime environment. `ray.init` refuses a variable that it already has."""

_generated_run_id: str | None = None
_generating = threading.Lock()


def install(ray: ModuleType) -> None:
    wrap(ray, "init", _forwarding)


def is_active(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process belongs to a run that asked for `akka_otel`."""
    return bool(environ.get(RUN_VARIABLE))


def asks(config: Any) -> bool:
    """Whether a configuration of verl names `akka_otel` among its loggers."""
    from akka_otel_callbacks.verl.settings import get

    loggers = get(config, "trainer.logger", ())
    return LOGGER in ([loggers] if isinstance(loggers, str) else list(loggers))


def calling_config() -> Any:
    """verl's configuration, from the functions that are being called: verl hands it to none of the things that are
    hooked here, and its programs run as `__main__`, where no import hook sees them. None where there is none."""
    from akka_otel_callbacks.verl.settings import get

    candidates = (frame.f_locals.get("config") for frame in _frames())
    return next((config for config in candidates if get(config, "trainer.logger") is not None), None)


def identity(config: Any, environ: Mapping[str, str] = os.environ) -> RunIdentity:
    """Who the run is: the same run in verl's driver, its task runner and every worker.

    Args:
        config: verl's configuration; None in a worker, which has the identity from the driver.
        environ: the process's environment.
    """
    from akka_otel_callbacks.common.identity import identify
    from akka_otel_callbacks.verl.settings import run_attributes

    engine = {} if config is None else run_attributes(_plain(config))
    return identify(environ, engine=engine, arguments=forwarded(environ), run_id=_run_id())


def adopt(run_id: str) -> None:
    """Takes the ID that another process generated for the run."""
    global _generated_run_id
    with _generating:
        _generated_run_id = run_id


def forget() -> None:
    """Ends the run in this process; another one that it begins gets an ID of its own."""
    global _generated_run_id
    with _generating:
        _generated_run_id = None


def _run_id() -> str:
    from akka_otel_callbacks.common.identity import generated_run_id

    global _generated_run_id
    with _generating:
        _generated_run_id = _generated_run_id or generated_run_id("verl")
        return _generated_run_id


def forwarded(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The identity that the driver handed on, by attribute name; empty in any other process."""
    pairs = (pair.partition("=") for pair in environ.get(RUN_VARIABLE, "").split(",") if pair)
    return {unquote(name): unquote(value) for name, _, value in pairs}


def to_forward(run: RunIdentity, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for the processes of a job, without those that its runtime environment gives them anyway."""
    shared = {name: value for name, value in environ.items() if name.startswith(PREFIXES) or name in TRACE}
    pairs = (f"{quote(name)}={quote(str(value))}" for name, value in run.attributes.items() if not name.startswith(OWN))
    given = _given_to_job(environ)
    variables = {**{name: shared[name] for name in shared.keys() - SUPERSEDED}, RUN_VARIABLE: ",".join(pairs)}
    return {name: value for name, value in variables.items() if name not in given}


def _given_to_job(environ: Mapping[str, str]) -> Mapping[str, str]:
    job = json.loads(environ.get(JOB_CONFIG) or "{}")
    return (job.get("runtime_env") or {}).get("env_vars") or {}


def _forwarding(init: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return init(*args, **_with_variables(kwargs))

    return wrapped


def _with_variables(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`ray.init`'s arguments with our variables in the job's runtime environment; what the user put there stays."""
    from akka_otel_callbacks.common.guard import guarded

    @guarded
    def forwarded_by_driver() -> dict[str, Any] | None:
        config = calling_config()
        if not asks(config):
            return None
        runtime_env = dict(kwargs.get("runtime_env") or {})
        chosen = runtime_env.get("env_vars") or {}
        runtime_env["env_vars"] = {**to_forward(identity(config), os.environ), **chosen}
        return {**kwargs, "runtime_env": runtime_env}

    return forwarded_by_driver() or kwargs


def _plain(config: Any) -> Any:
    """As `Tracking` is given it, so that both say the same of the run; OmegaConf refuses to show an unset value."""
    if isinstance(config, dict):
        return config
    from omegaconf import OmegaConf

    return OmegaConf.to_container(config, resolve=True)


def _frames() -> Iterator[Any]:
    frame: Any = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
