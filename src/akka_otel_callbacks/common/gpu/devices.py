"""The GPUs that this process holds, by UUID: the one name that CUDA, NVML, Ray and a cluster's exporters share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from akka_otel_callbacks.common.gpu.device_ids import DeviceIds, cuda_uuids, visible_devices
from akka_otel_callbacks.common.gpu.nvml import EXPECTED, Code, Nvml, Unavailable, text
from akka_otel_callbacks.common.vocabulary import names

VENDOR = "NVIDIA"
"""NVML knows no other."""

GRACE_S = 30.0
"""How long a GPU that cannot be told yet is left out of the placement before it is published without its UUID."""

NO_MIG = EXPECTED | {Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND}
"""What a GPU answers that cannot be divided: no reason for a log line."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG slice of one.

    Attributes:
        uuid: as NVML spells it, `GPU-…` or `MIG-…`.
        name: NVIDIA's product name, None where NVML does not give it.
        handle: NVML's, None while the device cannot be reached.
        driver: the version of its driver, None where NVML does not give it.
        parent: the GPU that a slice is part of, None for a whole GPU.
        instance: NVML's GPU instance ID of a slice, which its XID events carry.
    """

    uuid: str
    name: str | None = None
    handle: Any = field(default=None, compare=False, repr=False)
    parent: Device | None = None
    instance: int | None = None
    driver: str | None = None

    @property
    def gpu(self) -> Device:
        """The whole GPU, which temperature, power, clocks and faults are figures of."""
        return self.parent or self

    @property
    def attributes(self) -> dict[str, str]:
        found = {names.ATTR_HW_ID.name: self.uuid}
        if self.name:
            found[names.ATTR_HW_NAME.name] = self.name
        return found

    @property
    def description(self) -> dict[str, str]:
        """Its attributes with what it is. Without the serial number, which names somebody's property and which no other
        tool knows it by: the UUID is enough."""
        known = {names.ATTR_HW_MODEL.name: self.gpu.name, names.ATTR_HW_DRIVER_VERSION.name: self.driver}
        told = {name: value for name, value in known.items() if value}
        return {**self.attributes, names.ATTR_HW_VENDOR.name: VENDOR, **told}


class Devices:
    """The devices that the process holds. Found on the sampler's thread (`refresh`), read from any (`held`).

    CUDA's and NVML's orders differ (CUDA puts the fastest GPU first), so an index is translated only where it can
    mean one device: by torch's UUIDs once CUDA is in use, by PCI bus where CUDA_DEVICE_ORDER says so, or where the
    machine has a single GPU. Else the device is not known until the program uses CUDA.

    Args:
        device_ids: the process's devices. None for every device that CUDA shows to it, empty for none.
    """

    def __init__(
        self,
        nvml: Nvml,
        device_ids: DeviceIds | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.device_ids = device_ids
        self._nvml, self._environ, self._clock = nvml, environ, clock
        self._held: tuple[Device | None, ...] | None = None
        self._generation = 0
        self._deadline: float | None = None
        self.known = threading.Event()
        """Set once a device was found."""

    def held(self) -> tuple[Device | None, ...]:
        """One entry per device, None for one that cannot be read. Empty while they are looked for, and where the
        process holds none."""
        if self._held is not None:
            return self._held
        if self._deadline is not None and self._clock() > self._deadline:
            return (None,) * len(self.device_ids or ())
        return ()

    def reachable(self) -> list[Device]:
        """The devices with a valid handle, each once, and the GPUs that slices are part of."""
        found = [device for device in self.held() if device is not None]
        return list({d.uuid: d for device in found for d in (device, device.gpu) if d.handle is not None}.values())

    def refresh(self) -> None:
        """Looks for the devices that are not found yet, or whose handles a restart of NVML made invalid."""
        if self._deadline is None:
            self._deadline = self._clock() + GRACE_S
        if not self._nvml.open():
            if not any(self._held or ()):
                self._held = (None,) * len(self._selectors(None))
            return
        known = self._held or ()
        valid = self._generation == self._nvml.generation
        if valid and known and all(device is not None and device.handle is not None for device in known):
            return
        found = tuple(
            self._find_again(device, valid) if device is not None else self._find(selector)
            for device, selector in zip_longest(known, self._selectors(self._machine()))
        )
        self._generation = self._nvml.generation
        if all(found) or known or self._clock() > self._deadline:
            self._held = found
            if any(found):
                self.known.set()

    def _selectors(self, machine: list[str] | None) -> list[str | None]:
        """A UUID per held device, None for one that cannot be told yet."""
        cuda = cuda_uuids()
        if cuda is None:
            cuda = self._from_environment(machine)
        if self.device_ids is None:
            return list(cuda or ())
        return [self._selector(entry, cuda) for entry in self.device_ids]

    @staticmethod
    def _selector(entry: int | str, cuda: list[str] | None) -> str | None:
        if isinstance(entry, str):
            return entry
        return cuda[entry] if cuda is not None and 0 <= entry < len(cuda) else None

    def _from_environment(self, machine: list[str] | None) -> list[str] | None:
        """CUDA's devices in its order, as far as the environment alone says it."""
        visible = visible_devices(self._environ)
        if visible is None:
            return machine
        uuids: list[str] = []
        for entry in visible:
            if isinstance(entry, str):
                uuids.append(entry)
            elif machine is None:
                return None
            elif entry < len(machine):
                uuids.append(machine[entry])
            else:
                break  # CUDA takes nothing after an index that no device has
        return uuids

    def _machine(self) -> list[str] | None:
        """The UUIDs of the machine's GPUs in CUDA's order. None where that order cannot be told."""
        handles = self._handles()
        if len(handles) > 1 and self._environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            return None
        by_bus: list[tuple[str, str]] = []
        for handle in handles:
            bus = self._nvml.ask("nvmlDeviceGetPciInfo", to=(handle,))
            uuid = self._nvml.ask("nvmlDeviceGetUUID", to=(handle,))
            if isinstance(bus, Unavailable) or isinstance(uuid, Unavailable):
                return None
            by_bus.append((text(bus.busId), text(uuid)))
        return [uuid for _, uuid in sorted(by_bus)]

    def _handles(self) -> list[Any]:
        count = self._nvml.ask("nvmlDeviceGetCount")
        if isinstance(count, Unavailable):
            return []
        handles = (self._nvml.ask("nvmlDeviceGetHandleByIndex", to=(index,)) for index in range(count))
        return [handle for handle in handles if not isinstance(handle, Unavailable)]

    def _find_again(self, known: Device, valid: bool) -> Device:
        if valid and known.handle is not None:
            return known
        out_of_reach = replace(known, handle=None)  # but held all the same
        return self._find(known.uuid) or out_of_reach

    def _find(self, selector: str | None) -> Device | None:
        handle = None if selector is None else self._handle(selector)
        return None if handle is None else self._device(self._only_slice(handle))

    def _handle(self, selector: str) -> Any:
        prefixed = selector.startswith(("GPU-", "MIG-"))
        for uuid in (selector,) if prefixed else (f"GPU-{selector}", f"MIG-{selector}"):
            handle = self._nvml.ask("nvmlDeviceGetHandleByUUID", to=(uuid,))
            if not isinstance(handle, Unavailable):
                return handle
        # CUDA takes an abbreviated UUID where only one GPU begins with it.
        matching = [handle for handle in self._handles() if self._uuid(handle).startswith(selector)]
        return matching[0] if len(matching) == 1 else None

    def _only_slice(self, handle: Any) -> Any:
        """The one MIG slice of a GPU that is divided; the GPU itself where it is not or where there are several.

        Kubernetes shows a container one slice and no CUDA_VISIBLE_DEVICES, and CUDA may then name the GPU.
        """
        mode = self._nvml.ask("nvmlDeviceGetMigMode", to=(handle,), expected=NO_MIG)
        if isinstance(mode, Unavailable) or not mode[0]:
            return handle
        count = self._nvml.ask("nvmlDeviceGetMaxMigDeviceCount", to=(handle,))
        asked = (
            self._nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", to=(handle, index))
            for index in range(0 if isinstance(count, Unavailable) else count)
        )
        slices = [found for found in asked if not isinstance(found, Unavailable)]
        return slices[0] if len(slices) == 1 else handle

    def _device(self, handle: Any) -> Device | None:
        uuid = self._uuid(handle)
        if not uuid:
            return None
        name = self._nvml.ask("nvmlDeviceGetName", to=(handle,))
        driver = self._nvml.ask("nvmlSystemGetDriverVersion")
        parent = instance = None
        if uuid.startswith("MIG-"):
            gpu = self._nvml.ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", to=(handle,))
            parent = None if isinstance(gpu, Unavailable) else self._device(gpu)
            instance = self._nvml.ask("nvmlDeviceGetGpuInstanceId", to=(handle,))
        return Device(
            uuid,
            None if isinstance(name, Unavailable) else text(name),
            handle,
            parent,
            None if isinstance(instance, Unavailable) else instance,
            None if isinstance(driver, Unavailable) else text(driver),
        )

    def _uuid(self, handle: Any) -> str:
        uuid = self._nvml.ask("nvmlDeviceGetUUID", to=(handle,))
        return "" if isinstance(uuid, Unavailable) else text(uuid)
