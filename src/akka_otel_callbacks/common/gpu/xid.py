"""Waits for XIDs, the driver's codes for a GPU fault, on its own thread; counts them and writes them to the log."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import Any

from akka_otel_callbacks.common.gpu.devices import Device, Devices
from akka_otel_callbacks.common.gpu.nvml import EXPECTED, Code, Nvml, Unavailable, text
from akka_otel_callbacks.common.gpu.xid_codes import CAUSES, FELL_OFF_THE_BUS, cause_of, describe
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.logs.record import about
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
NO_INSTANCE = 0xFFFFFFFF  # the GPU instance ID of an event that is no slice's
NO_EVENTS: frozenset[int] = EXPECTED | {Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND}

WAIT_MS = 1000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


@dataclass(slots=True)
class Watched:
    """A GPU whose events were asked for. Its UUID is kept from then: a GPU that fails may not tell it any more.

    Attributes:
        instances: the GPU instance IDs of the slices that the process holds, empty where it holds the whole GPU.
        causes: how many of its XIDs have which usual cause.
        fell: it reported that it fell off the bus, from where it does not come back while the job lives.
    """

    device: Device
    instances: frozenset[int | None] = frozenset()
    causes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    last: int | None = None
    fell: bool = False


class XidWatcher:
    """Counts XIDs by GPU and usual cause from the moment that its events are registered.

    A GPU whose events NVML does not deliver has no series. After a failure, such as a lost GPU or a driver that goes
    away, the events are registered again, at growing intervals; counts go on where they were.
    """

    metrics = (names.GPU_XID_ERRORS, names.GPU_XID_CAUSES, names.GPU_XID_LAST)

    def __init__(
        self, nvml: Nvml, devices: Devices, wait_ms: int = WAIT_MS, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._nvml, self._devices = nvml, devices
        self._wait_ms, self._first_pause_s = wait_ms, first_pause_s
        self._watched: dict[str, Watched] = {}
        self._said: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="akka-otel-xid", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 0.0) -> None:
        """Ends the watch. The thread leaves its wait within `WAIT_MS`; waiting for it is not needed, it is a daemon."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def points(self, metric: Metric) -> list[Point]:
        watched = list(self._watched.values())
        if metric is names.GPU_XID_ERRORS:
            return [(sum(gpu.causes.values()), gpu.device.attributes) for gpu in watched]
        if metric is names.GPU_XID_CAUSES:
            return [
                (count, {**gpu.device.attributes, names.ATTR_GPU_XID_CAUSE.name: cause})
                for gpu in watched
                for cause, count in gpu.causes.items()
            ]
        return [(gpu.last, gpu.device.attributes) for gpu in watched if gpu.last is not None]

    def fallen(self) -> list[Device]:
        """The GPUs that fell off the bus."""
        return [gpu.device for gpu in list(self._watched.values()) if gpu.fell]

    def _run(self) -> None:
        pause_s = self._first_pause_s
        while not self._stopping.is_set():
            if not self._devices.known.wait(self._wait_ms / 1000):
                continue
            if self._watch():
                pause_s = self._first_pause_s
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @guarded
    def _watch(self) -> bool:
        """Registers the GPUs' events and takes them in until that fails; whether NVML delivered for a while."""
        gpus = [device for device in self._devices.reachable() if device.parent is None]
        if not gpus or not self._nvml.open():
            return False
        events = self._nvml.ask("nvmlEventSetCreate", expected=NO_EVENTS)
        if isinstance(events, Unavailable):
            self._say_unwatched(gpus, events)
            return False
        try:
            failed = [self._register(gpu, events) for gpu in gpus]
            lost = any(answer is not None and answer.code not in NO_EVENTS for answer in failed)
            return None in failed and self._listen(events, forever=not lost)
        finally:
            self._nvml.ask("nvmlEventSetFree", to=(events,))

    def _register(self, gpu: Device, events: Any) -> Unavailable | None:
        """Asks for the XIDs of a GPU. None where they will come."""
        answer = self._nvml.ask("nvmlDeviceGetSupportedEventTypes", to=(gpu.handle,), expected=NO_EVENTS)
        if not isinstance(answer, Unavailable):
            if answer & XID_EVENT:
                wanted = (gpu.handle, XID_EVENT, events)
                answer = self._nvml.ask("nvmlDeviceRegisterEvents", to=wanted, expected=NO_EVENTS)
            else:
                answer = Unavailable(Code.NOT_SUPPORTED, "no XIDs among its events")
        if isinstance(answer, Unavailable):
            self._say_unwatched([gpu], answer)
            return answer
        watched = self._watched.setdefault(gpu.uuid, Watched(gpu))
        watched.device = gpu
        watched.instances = frozenset(device.instance for device in self._devices.reachable() if device.parent == gpu)
        return None

    def _say_unwatched(self, gpus: list[Device], why: Unavailable) -> None:
        unsaid = {gpu.uuid for gpu in gpus} - self._watched.keys() - self._said
        self._said |= unsaid
        if unsaid:
            logger.info("NVML delivers no XIDs for %s (%s); they are not counted", ", ".join(sorted(unsaid)), why.text)

    def _listen(self, events: Any, *, forever: bool) -> bool:
        """Takes events in until NVML fails, or until it is time to try again for a GPU that could not be registered."""
        waits = 0
        while not self._stopping.is_set() and (forever or waits * self._wait_ms < LONGEST_PAUSE_S * 1000):
            event = self._nvml.ask("nvmlEventSetWait_v2", "nvmlEventSetWait", to=(events, self._wait_ms))
            if self._stopping.is_set() or (isinstance(event, Unavailable) and event.code != Code.TIMEOUT):
                break
            waits += 1
            if not isinstance(event, Unavailable) and event.eventType & XID_EVENT:
                self._take_in(event)
        return waits > 0

    def _take_in(self, event: Any) -> None:
        gpu = self._gpu_of(event)
        code = int(event.eventData)
        if gpu is None:
            what = about(names.EVENT_GPU_XID, {names.ATTR_GPU_XID.name: code})
            logger.warning("XID %d on an unknown GPU: %s", code, describe(code), extra=what)
            return
        if gpu.instances and not gpu.instances & {event.gpuInstanceId, None} and event.gpuInstanceId != NO_INSTANCE:
            return  # it was on another job's slice of the GPU
        gpu.causes[cause_of(code)] += 1
        gpu.last = code
        gpu.fell |= code == FELL_OFF_THE_BUS
        what = about(names.EVENT_GPU_XID, {**gpu.device.attributes, names.ATTR_GPU_XID.name: code})
        name = gpu.device.name or "GPU"
        logger.warning("XID %d on %s (%s): %s", code, gpu.device.uuid, name, describe(code), extra=what)

    def _gpu_of(self, event: Any) -> Watched | None:
        """The GPU of an event, found by the handle that was registered. If no handle is the same, the GPU is asked."""
        address = _address(event.device)
        for gpu in self._watched.values():
            if _address(gpu.device.handle) == address:
                return gpu
        uuid = self._nvml.ask("nvmlDeviceGetUUID", to=(event.device,))
        return None if isinstance(uuid, Unavailable) else self._watched.get(text(uuid))


def _address(handle: Any) -> int | None:
    """Two handles of one device are two ctypes pointers; equal is the address that they hold."""
    return ctypes.cast(handle, ctypes.c_void_p).value if isinstance(handle, ctypes._Pointer) else id(handle)
