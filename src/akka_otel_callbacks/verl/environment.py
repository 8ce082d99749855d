"""Carries the run's identity, its exporter settings and its trace from verl's driver to the processes of the job.

A Ray cluster that runs already gives nothing of the driver's environment to a job's processes. So the driver hands it
to `ray.init`, and to the actors that it makes where Ray was there before. Who the run is, its trainer's process says:
it hands that to the actors which it makes. Actors made by an actor inherit both.

The hooks run in every process of verl: this module imports nothing heavy.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.run.handed_on import (
    ATTRIBUTES,
    RUN_VARIABLE,
    UNNAMED,
    forwarded,
    is_active,
    names_run,
    parsed,
    written,
)
from akka_otel_callbacks.common.switches import EVERYTHING, is_off
from akka_otel_callbacks.verl.config import asks, calling_config
from akka_otel_callbacks.verl.patching.importhook import wrap

PREFIXES = ("OTEL_", "AKKA_OTEL_")
TRACE = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
SERVICE = "OTEL_SERVICE_NAME"
SUPERSEDED = (ATTRIBUTES, RUN_VARIABLE)
"""The identity has what the first one says; where it stands in a worker's own environment, it says where that is."""

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where `ray job submit` puts the job's runtime environment. `ray.init` refuses a variable that it already has."""
LAUNCHER, LAUNCHED = "run_ppo", "TaskRunner"
"""verl's function that starts a training, and its name for the actor that then is the trainer's process."""

_handed_to_job: set[str] = set()
"""The variables that the job has from here, and not from the user."""
_launched: Counter[str] = Counter()
"""Trainings that this process started of each run that the user gave a name."""


def install(ray: ModuleType) -> None:
    wrap(ray, "init", _forwarding, copies=False)  # a copy's job is noticed when verl makes its first actor


def install_actors(ray_actor: ModuleType) -> None:
    wrap(ray_actor.ActorClass, "_remote", _handing_on)


def is_disabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether everything is switched off. The word `akka_otel` among the loggers is then taken, and does nothing."""
    return is_off(EVERYTHING, environ)


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose the exporters and name the trace. An empty one is as good as none."""
    chosen = {name: value for name, value in environ.items() if name.startswith(PREFIXES) or name in TRACE}
    return {name: value for name, value in chosen.items() if value and name not in SUPERSEDED}


def to_launch(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The variables for the process that is to train, which will say by itself who the run is.

    Args:
        environ: the driver's.
        given: the variables that the user gives the job's processes, which win.
    """
    if is_disabled(environ):
        return {EVERYTHING: "1"}
    from akka_otel_callbacks.common.run.identity import said
    from akka_otel_callbacks.common.vocabulary import names

    both = _joined(environ, given)
    known: dict[str, Any] = {**forwarded(environ), **parsed(both[ATTRIBUTES])}
    if both.get(SERVICE):
        known[names.ATTR_SERVICE_NAME.name] = both[SERVICE]
    attempt = known.pop(names.ATTR_RUN_ATTEMPT.name, None) and said(names.ATTR_RUN_ATTEMPT, both)
    if earlier := _launched[known.get(names.ATTR_RUN_ID.name, "")]:  # of this run, so that one attempt is not two
        attempt = (attempt or 1) + earlier
    if attempt is not None:
        known[names.ATTR_RUN_ATTEMPT.name] = attempt
    return {**_not_given(settings(environ), given), RUN_VARIABLE: f"{UNNAMED},{written(known)}"}


def _joined(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The environment as the job's processes have it, with the driver's own attributes behind what is given."""
    both = {**environ, **given}
    both[ATTRIBUTES] = ",".join(source[ATTRIBUTES] for source in (environ, given) if source.get(ATTRIBUTES))
    if SERVICE not in given and "service.name" in parsed(given.get(ATTRIBUTES, "")):
        both.pop(SERVICE, None)  # it would win over the name that is given
    return both


def _not_given(variables: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in given}


def _forwarding(init: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return init(*args, **_with_variables(kwargs))

    return wrapped


def _with_variables(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`ray.init`'s arguments with our variables in the job's runtime environment; what the user put there stays."""
    from akka_otel_callbacks.common.guard import guarded

    @guarded
    def forwarded_by_driver() -> dict[str, Any] | None:
        if not asks(calling_config()):
            return None
        runtime_env = dict(kwargs.get("runtime_env") or {})
        chosen = runtime_env.get("env_vars") or {}
        submitted = _submitted(os.environ)
        ours = _not_given(to_launch(os.environ, {**submitted, **chosen}), submitted)
        runtime_env["env_vars"] = {**ours, **chosen}
        _handed_to_job.clear()
        _handed_to_job.update(ours.keys() - chosen.keys())
        return {**kwargs, "runtime_env": runtime_env}

    return forwarded_by_driver() or kwargs


def _submitted(environ: Mapping[str, str]) -> Mapping[str, str]:
    job = json.loads(environ.get(JOB_CONFIG) or "{}")
    return (job.get("runtime_env") or {}).get("env_vars") or {}


def _handing_on(make: Callable[..., Any]) -> Callable[..., Any]:
    def _remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        return make(self, args, kwargs, **_with_run(self, options))

    return _remote


def _with_run(actor_class: Any, options: dict[str, Any]) -> dict[str, Any]:
    """An actor's options with what it needs to know of the run; what verl or the user put there stays."""
    from akka_otel_callbacks.common.guard import guarded

    @guarded
    def handed_on() -> dict[str, Any] | None:
        variables = _variables_for(actor_class)
        if not variables:
            return None
        from ray.runtime_env import RuntimeEnv

        runtime_env = dict(options.get("runtime_env") or {})
        runtime_env["env_vars"] = {**variables, **(runtime_env.get("env_vars") or {})}
        return {**options, "runtime_env": RuntimeEnv(**runtime_env)}

    return handed_on() or options


def _variables_for(actor_class: Any) -> dict[str, str]:
    """Empty where the actor inherits all of it, and in a run that did not ask."""
    from akka_otel_callbacks.verl import run

    config = None if run.is_known() else calling_config()
    if not run.is_known() and not asks(config):
        return {}
    if is_disabled():
        return {EVERYTHING: "1"}
    from akka_otel_callbacks.common.vocabulary.names import ATTR_RUN_ID

    given = {} if is_active() else _given_by_user()
    if _is_launch(actor_class):
        variables = to_launch(os.environ, given)
        if name := forwarded(variables).get(ATTR_RUN_ID.name):
            _launched[name] += 1
        return variables
    if names_run():
        return {}
    variables = {} if is_active() else _not_given(settings(os.environ), given)
    return {**variables, RUN_VARIABLE: written(run.identity(config).attributes)}


def _is_launch(actor_class: Any) -> bool:
    """Whether the actor is to be the trainer of a run of its own: it is called so, or a launcher makes it. What
    verl makes within a launcher is of a user's own, which trains right there."""
    if LAUNCHED in getattr(getattr(actor_class, "__ray_metadata__", None), "class_name", ""):
        return True
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != LAUNCHER:
        if str(frame.f_globals.get("__name__")).startswith("verl."):
            return False
        frame = frame.f_back
    return frame is not None


def _given_by_user() -> Mapping[str, str]:
    """The variables of the job's runtime environment that are not from here."""
    import ray

    if not ray.is_initialized():
        return {}
    try:
        variables = ray.get_runtime_context().runtime_env.get("env_vars") or {}
    except Exception:  # noqa: BLE001 - a client of Ray knows less of its job
        return {}
    return {name: value for name, value in variables.items() if name not in _handed_to_job}
