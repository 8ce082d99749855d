"""Who a service is: the resource of its series, and the instance that its gauges name."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.run.attributes import otel_resource_attributes, typed
from akka_otel_callbacks.common.run.identity import Identity, machine
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

DEFAULT_SERVICE_NAME = "akka-trainer-service"
OF_ANY_PROCESS = frozenset(
    attribute.name
    for attribute in (
        names.ATTR_SERVICE_NAME,
        names.ATTR_SERVICE_INSTANCE_ID,
        names.ATTR_K8S_POD_NAME,
        names.ATTR_K8S_NODE_NAME,
        names.ATTR_HOST_NAME,
        names.ATTR_PROCESS_PID,
    )
)
OF_A_RUN = frozenset(attribute.name for attribute in names.RESOURCE_ATTRIBUTES) - OF_ANY_PROCESS
IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True)
class ServiceIdentity(Identity):
    """Who an instance of a service is.

    Attributes:
        instance: its name on the gauges that every instance reports alike.
    """

    instance: str = ""

    @property
    def folder(self) -> str:
        return f"{self.attributes[names.ATTR_SERVICE_NAME.name]}-{self.instance}"


def identify_service(
    environ: Mapping[str, str], arguments: Mapping[str, Any] | None = None, instance: str | None = None
) -> ServiceIdentity:
    """The service's resource. It names no run, whatever the environment says, because a service serves many: the
    number of its series grows with the projects and not with the runs.

    Args:
        environ: the process's environment; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count.
        arguments: attributes given in code, by full name, which come first.
        instance: the instance's name. None is the pod's, or outside Kubernetes the host's with the process ID.
    """
    standard = {names.ATTR_SERVICE_INSTANCE_ID.name: str(uuid.uuid4())}
    if not environ.get("OTEL_SERVICE_NAME"):
        standard[names.ATTR_SERVICE_NAME.name] = DEFAULT_SERVICE_NAME
    found = typed(machine(environ), standard, otel_resource_attributes(environ), arguments or {})
    left_out = sorted(OF_A_RUN & found.keys())
    if left_out:
        logger.warning(
            "%s: a service has no attributes of a single run on its resource; they are left out", ", ".join(left_out)
        )
    attributes = {name: value for name, value in found.items() if name not in OF_A_RUN}
    return ServiceIdentity(attributes, instance or _instance(attributes.get(names.ATTR_K8S_POD_NAME.name), environ))


def _instance(pod: AttributeValue | None, environ: Mapping[str, str]) -> str:
    """The pod that the service runs as. In Kubernetes the host's name is the pod's, where nothing else tells it;
    elsewhere several processes may share a host."""
    if pod:
        return str(pod)
    host = socket.gethostname()
    return host if environ.get(IN_KUBERNETES) else f"{host}:{os.getpid()}"
