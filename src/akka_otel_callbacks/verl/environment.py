"""Carries the run's identity, its exporter settings and its trace from verl's driver to the processes of the job.

A Ray cluster that runs already gives nothing of the driver's environment to a job's processes. So the driver hands it
to `ray.init`, and to the actors that it makes where Ray was there before. The trainer's process says who the run is,
and hands that to the actors that it makes. Actors that are made by an actor inherit both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.run.handed_on import (
    RUN_VARIABLE,
    UNNAMED,
    forwarded,
    is_active,
    names_run,
    written,
)
from akka_otel_callbacks.common.run.pairs import ATTRIBUTES, parsed
from akka_otel_callbacks.common.switches import EVERYTHING, is_off
from akka_otel_callbacks.verl import remote_trainer
from akka_otel_callbacks.verl.callers import calling_config, is_called_by_launcher
from akka_otel_callbacks.verl.config import asks
from akka_otel_callbacks.verl.state import STATE

if TYPE_CHECKING:
    from akka_otel_callbacks.common.patching.calls import Call

PREFIXES = ("OTEL_", "AKKA_OTEL_")
TRACE = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
SERVICE = "OTEL_SERVICE_NAME"
SUPERSEDED = (ATTRIBUTES, RUN_VARIABLE)
"""The identity has what the first one says; where it stands in a worker's own environment, it says where that is."""

JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable in which `ray job submit` hands on the job's runtime environment. `ray.init` refuses a variable that it
already has."""
LAUNCHED = "TaskRunner"
"""verl's name for the actor that is the trainer's process."""


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
    if is_off(EVERYTHING, environ):
        return {EVERYTHING: "1"}
    from akka_otel_callbacks.common.run.attributes import said, typed
    from akka_otel_callbacks.common.vocabulary import names

    both = _joined(environ, given)
    known: dict[str, Any] = {**forwarded(environ), **parsed(both[ATTRIBUTES])}
    if both.get(SERVICE):
        known[names.ATTR_SERVICE_NAME.name] = both[SERVICE]
    name = {names.ATTR_RUN_ID.name: known.pop(names.ATTR_RUN_ID.name, None)}
    known.update(typed(name))  # one that nobody can use is no name of several trainings
    attempt = known.pop(names.ATTR_RUN_ATTEMPT.name, None) and said(names.ATTR_RUN_ATTEMPT, both)
    earlier = STATE.trainings_launched[known.get(names.ATTR_RUN_ID.name, "")]
    if earlier:  # one attempt is not two
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


def forward(init: Call) -> None:
    """Puts our variables into the job's runtime environment; what the user put there stays."""
    if not asks(calling_config()):
        return
    runtime_env = dict(init.kwargs.get("runtime_env") or {})
    chosen = runtime_env.get("env_vars") or {}
    submitted = _submitted(os.environ)
    ours = _not_given(to_launch(os.environ, {**submitted, **chosen}), submitted)
    runtime_env["env_vars"] = {**ours, **chosen}
    STATE.handed_to_job = set(ours.keys() - chosen.keys())
    init.kwargs = {**init.kwargs, "runtime_env": runtime_env}


def _submitted(environ: Mapping[str, str]) -> Mapping[str, str]:
    job = json.loads(environ.get(JOB_CONFIG) or "{}")
    return (job.get("runtime_env") or {}).get("env_vars") or {}


def hand_on(make: Call) -> None:
    """Gives an actor the variables that say what it needs to know of the run. What verl or the user put among its
    options stays."""
    variables = _variables_for(make.owner)
    if not variables:
        return
    from ray.runtime_env import RuntimeEnv

    runtime_env = dict(make.kwargs.get("runtime_env") or {})
    runtime_env["env_vars"] = {**variables, **(runtime_env.get("env_vars") or {})}
    make.kwargs = {**make.kwargs, "runtime_env": RuntimeEnv(**runtime_env)}


def _variables_for(actor_class: Any) -> dict[str, str]:
    """The variables for an actor. Empty if the actor inherits all of them, and in a run that did not ask for
    `akka_otel`."""
    from akka_otel_callbacks.verl import run

    config = None if run.is_known() else calling_config()
    if not run.is_known() and not asks(config):
        return {}
    if is_off(EVERYTHING, os.environ):
        return {EVERYTHING: "1"}
    from akka_otel_callbacks.common.vocabulary.names import ATTR_RUN_ID

    given = {} if is_active() else _given_by_user()
    if _is_launch(actor_class):
        remote_trainer.watch(actor_class)
        variables = to_launch(os.environ, given)
        if name := forwarded(variables).get(ATTR_RUN_ID.name):
            STATE.trainings_launched[name] += 1
        return variables
    if names_run():
        return {}
    variables = {} if is_active() else _not_given(settings(os.environ), given)
    return {**variables, RUN_VARIABLE: written(run.identity(config).attributes), **run.job_span()}


def _is_launch(actor_class: Any) -> bool:
    """Whether the actor is to be the trainer of a run of its own: it is called so, or a launcher makes it."""
    name = getattr(getattr(actor_class, "__ray_metadata__", None), "class_name", "")
    return LAUNCHED in name or is_called_by_launcher()


def _given_by_user() -> Mapping[str, str]:
    """The variables of the job's runtime environment that the user put there."""
    import ray

    if not ray.is_initialized():
        return {}
    try:
        variables = ray.get_runtime_context().runtime_env.get("env_vars") or {}
    except Exception:  # noqa: BLE001 - a client of Ray knows less of its job
        return {}
    return {name: value for name, value in variables.items() if name not in STATE.handed_to_job}
