"""Where a process runs and which GPUs it holds: the series that joins a cluster's own metrics to a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import AttributeValue, Point

WHERE = (names.ATTR_K8S_POD_NAME, names.ATTR_K8S_NODE_NAME, names.ATTR_HOST_NAME)


class Placement:
    """The points of `job.placement`: 1 for every device that the process holds, for as long as it lives.

    A device that NVML cannot read has its series without UUID and name. Nothing is published while the devices are
    being looked for, so that no series changes its identity in the first seconds.

    Args:
        devices: the process's devices.
        rank: its rank in a group of processes, on every series. None for a job of one process, where the series'
            rank is the device's position among those that the process holds.
        where: the resource's attributes; pod, node and host are taken from it.
        role: gives what the process does, in the engine's words. Nothing is published while it gives None. Without it
            the process is a trainer.
        without_gpu: one series for the process also where it holds no device, as for each of verl's workers.
    """

    metrics = (names.JOB_PLACEMENT,)

    def __init__(
        self,
        devices: Devices,
        *,
        where: Mapping[str, AttributeValue],
        rank: int | None = None,
        role: Callable[[], str | None] | None = None,
        without_gpu: bool = False,
    ) -> None:
        self._devices, self._rank = devices, rank
        self._role = role or (lambda: names.JobRole.TRAINER)
        self._where = {attribute.name: where[attribute.name] for attribute in WHERE if where.get(attribute.name)}
        self._holds_none = without_gpu and devices.device_ids is not None and not len(devices.device_ids)

    def points(self, metric: Metric = names.JOB_PLACEMENT) -> list[Point]:
        role = self._role()
        if role is None:
            return []
        held = (None,) if self._holds_none else self._devices.held()
        return [
            (
                1,
                {
                    names.ATTR_JOB_RANK.name: position if self._rank is None else self._rank,
                    names.ATTR_JOB_ROLE.name: role,
                    **(device.attributes if device is not None else {}),
                    **self._where,
                },
            )
            for position, device in enumerate(held)
        ]
