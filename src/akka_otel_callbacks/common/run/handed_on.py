"""Hands the run's identity from one of its processes to another, in the environment. It imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from akka_otel_callbacks.common.run import pairs

RUN_VARIABLE = "AKKA_OTEL_RUN"
"""Set in every process of a run that asked for `akka_otel`: what is known of the run's identity, written as
OTEL_RESOURCE_ATTRIBUTES, with names percent-encoded too."""

UNNAMED = "?"
"""The first of them in the process that is to train: it will say by itself who the run is."""

OWN = (
    "k8s.pod.",
    "k8s.node.",
    "k8s.container.",
    "host.",
    "os.",
    "device.",
    "process.",
    "container.",
    "service.instance.",
    "cloud.availability_zone",
    "cloud.resource_id",
    "aws.ecs.task.",
    "aws.ecs.container.",
)
"""Prefixes of attributes that are true of one process, pod or node only. They are never handed on."""
PLACE = ("k8s.", "cloud.", "aws.", "azure.", "gcp.")
"""Prefixes of further attributes that say where a process is. What a process knows of its own place wins."""


def is_active(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process belongs to a run that asked for `akka_otel`."""
    return bool(environ.get(RUN_VARIABLE))


def names_run(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the trainer's process has told this one who the run is."""
    return is_active(environ) and not environ[RUN_VARIABLE].startswith(UNNAMED)


def forwarded(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The attributes that another process handed on, by name. Empty if none did. Those of this process's own place are
    left out."""
    handed_on = {unquote(name): value for name, value in pairs.parsed(environ.get(RUN_VARIABLE, "")).items()}
    said_here = pairs.parsed(environ.get(pairs.ATTRIBUTES, "")) if handed_on else {}
    own = {name for name in said_here if name.startswith(PLACE)}
    return {name: value for name, value in handed_on.items() if name not in own}


def written(attributes: Mapping[str, Any]) -> str:
    """Attributes as the value of the variable, without those that are true of this process only."""
    shared = {name: value for name, value in attributes.items() if not name.startswith(OWN)}
    return ",".join(f"{_quoted(name)}={_quoted(value)}" for name, value in shared.items())


def _quoted(text: Any) -> str:
    return quote(str(text), errors="replace")  # what is no UTF-8 in the environment cannot be sent
