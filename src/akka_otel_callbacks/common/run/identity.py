"""Who the run is: the resource attributes that every signal of a training job carries."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.run.attributes import BY_NAME, otel_resource_attributes, typed, whole_number
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

DEFAULT_SERVICE_NAME = "akka-training-job"
POD_VARIABLES: Mapping[Attribute, tuple[str, ...]] = {
    names.ATTR_K8S_POD_NAME: ("K8S_POD_NAME", "POD_NAME"),
    names.ATTR_K8S_NODE_NAME: ("K8S_NODE_NAME", "NODE_NAME"),
}
"""The variables in which the downward API usually has them. HOSTNAME is no source: outside Kubernetes it is set just
the same."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The resource attributes of a process by full name, each in the type that the registry gives it."""

    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of the folder of the embedded files, if the environment names none."""
        return str(self.attributes[names.ATTR_SERVICE_NAME.name])

    @property
    def share(self) -> float:
        """A number from 0 up to 1 that differs between instances and stays the same for one. Thousands of processes
        that start together wait for this share of an interval, so that they do not all act at the same moment."""
        instance = str(self.attributes.get(names.ATTR_SERVICE_INSTANCE_ID.name, self.folder))
        return int.from_bytes(hashlib.sha256(instance.encode()).digest()[:6], "big") / 2**48

    def resource(self) -> Resource:
        from opentelemetry.sdk.resources import Resource

        created = Resource.create(dict(self.attributes))
        # The SDK reads OTEL_RESOURCE_ATTRIBUTES too, and would bring back what was found malformed.
        known = {
            name: value for name, value in created.attributes.items() if name in self.attributes or name not in BY_NAME
        }
        return Resource(known, created.schema_url)


@dataclass(frozen=True, slots=True)
class RunIdentity(Identity):
    """Who a training job is."""

    @property
    def run_id(self) -> str:
        return str(self.attributes[names.ATTR_RUN_ID.name])

    @property
    def attempt(self) -> int:
        return int(self.attributes[names.ATTR_RUN_ATTEMPT.name])

    @property
    def folder(self) -> str:
        return self.run_id

    def beside_another(self) -> RunIdentity:
        """The same run and attempt, with an instance ID that only this process has."""
        instance = names.ATTR_SERVICE_INSTANCE_ID.name
        return RunIdentity({**self.attributes, instance: f"{self.attributes[instance]}.{os.getpid()}"})


def identify(
    environ: Mapping[str, str],
    *,
    engine: Mapping[Attribute, Any],
    arguments: Mapping[str, Any] | None = None,
    rank: int = 0,
    run_id: str | None = None,
    attempt: int | None = None,
) -> RunIdentity:
    """Puts the identity together from these sources, the first of which wins: `arguments` in code,
    `OTEL_RESOURCE_ATTRIBUTES`, the engine's own configuration, the machine, and a generated run ID.

    Args:
        environ: the process's environment.
        engine: what the engine's configuration says, by attribute. None and unusable values are left out.
        arguments: attributes given in code, by full name.
        rank: the process's rank in the job, part of `service.instance.id`.
        run_id: the ID to use if nothing names one. None generates one.
        attempt: the attempt to use if nothing names one. None counts torchrun's restarts.
    """
    attributes: dict[str, AttributeValue] = {
        names.ATTR_RUN_ID.name: run_id or generated_run_id(str(engine.get(names.ATTR_RUN_ENGINE, "run"))),
        names.ATTR_RUN_ATTEMPT.name: restarts(environ) + 1 if attempt is None else attempt,
        **typed(
            machine(environ),
            {attribute.name: value for attribute, value in engine.items()},
            otel_resource_attributes(environ),
            arguments or {},
        ),
    }
    _mirror_project(attributes)
    attributes.setdefault(
        names.ATTR_SERVICE_INSTANCE_ID.name,
        f"{attributes[names.ATTR_RUN_ID.name]}.{attributes[names.ATTR_RUN_ATTEMPT.name]}.{rank}",
    )
    return RunIdentity(attributes)


def restarts(environ: Mapping[str, str]) -> int:
    """How often torchrun started the job's processes again."""
    return max(0, whole_number(environ.get("TORCHELASTIC_RESTART_COUNT")) or 0)


def generated_run_id(prefix: str) -> str:
    """Such as `trl-20261129-184501-7f3ac210`. It sorts by time, and its random end tells runs apart that begin in the
    same second, such as those of a job array. It does not use `random`, which trainings seed alike."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def machine(environ: Mapping[str, str]) -> dict[str, Any]:
    """The service's name, and the machine, process and pod that this is."""
    found: dict[str, Any] = {
        names.ATTR_SERVICE_NAME.name: environ.get("OTEL_SERVICE_NAME") or DEFAULT_SERVICE_NAME,
        names.ATTR_HOST_NAME.name: socket.gethostname(),
        names.ATTR_PROCESS_PID.name: os.getpid(),
    }
    for attribute, variables in POD_VARIABLES.items():
        found[attribute.name] = next((environ[name] for name in variables if environ.get(name)), None)
    return found


def _mirror_project(attributes: dict[str, AttributeValue]) -> None:
    """The project also goes by its older name `workload`; whichever is given sets both."""
    new, old = names.ATTR_PROJECT.name, names.ATTR_WORKLOAD.name
    project = attributes.get(new, attributes.get(old))
    if project is not None:
        attributes[new] = attributes[old] = project
