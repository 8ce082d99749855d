"""GPUs that do not exist, for tests on machines without one: what pynvml would answer for them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from akka_otel_callbacks.common.gpu.nvml import Code
from akka_otel_callbacks.common.gpu.readings import FIELDS
from akka_otel_callbacks.common.gpu.xid import NO_INSTANCE, XID_EVENT

FIELD_IDS = {reading: field_id for field_id, reading in FIELDS.items()}
UNSIGNED_LONG_LONG = 3
DRIVER = "570.86.15"


class FakeNvmlError(Exception):
    """Stands for pynvml's NVMLError: `value` is the return code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"fake NVML: {Code(value).name.replace('_', ' ').lower()}")
        self.value = value


@dataclass(slots=True, eq=False)
class FakeGpu:
    """A healthy GPU; set its attributes while the program runs, to `None` for what it does not support.

    Units are NVML's own: percent, milliwatts, MHz, bytes, millijoules.
    """

    uuid: str = "GPU-00000000-0000-0000-0000-000000000001"
    name: str = "NVIDIA H100 80GB HBM3"
    lost: bool = False
    power_mw: int | None = 250_000
    celsius: int | None = 50
    gpu_percent: int | None = 80
    memory_percent: int | None = 40
    sm_mhz: int | None = 1980
    memory_mhz: int | None = 2619
    throttle_bits: int | None = 0
    memory_used: int = 20 << 30
    memory_total: int | None = 80 << 30
    memory_reserved: int | None = 512 << 20
    """What the driver keeps for itself, apart from what is used. None for a driver that does not tell the two apart."""
    fields: dict[str, int] = field(
        default_factory=lambda: {
            "memory_celsius": 55,
            "energy_mj": 0,
            "ecc_on": 1,
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "rows_corrected": 0,
            "rows_uncorrected": 0,
            "rows_pending": 0,
        }
    )
    """Field values by the names of `readings.FIELDS`; one that is missing is not supported."""


class FakeNvml:
    """A backend for `GpuHealth` with scripted GPUs.

    Args:
        gpus: in NVML's order.
        device_ids: hand it to `GpuHealth` as the devices that the process holds; every GPU unless given.
    """

    def __init__(self, *gpus: FakeGpu, device_ids: tuple[str, ...] | None = None) -> None:
        self.gpus = gpus or (FakeGpu(),)
        self.device_ids = tuple(gpu.uuid for gpu in self.gpus) if device_ids is None else device_ids
        self._events: queue.Queue[SimpleNamespace] = queue.Queue()

    def xid(self, code: int, gpu: FakeGpu | None = None) -> None:
        """A GPU, the first unless named, reports a fault."""
        self._events.put(
            SimpleNamespace(device=gpu or self.gpus[0], eventType=XID_EVENT, eventData=code, gpuInstanceId=NO_INSTANCE)
        )

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function not in ANSWERS:
            raise AttributeError(function)
        return lambda gpu, *_: self._of(gpu, ANSWERS[function])

    @staticmethod
    def _of(gpu: FakeGpu, answer: Callable[[FakeGpu], Any]) -> Any:
        if gpu.lost:
            raise FakeNvmlError(Code.GPU_IS_LOST)
        value = answer(gpu)
        if value is None:
            raise FakeNvmlError(Code.NOT_SUPPORTED)
        return value

    def nvmlInit(self) -> None:
        """Always succeeds."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return DRIVER

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> Any:
        if version and gpu.memory_reserved is None:
            raise FakeNvmlError(Code.FUNCTION_NOT_FOUND)
        reserved = 0 if version else gpu.memory_reserved or 0
        memory = SimpleNamespace(total=gpu.memory_total, used=gpu.memory_used + reserved)
        return self._of(gpu, lambda gpu: memory if gpu.memory_total is not None else None)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise FakeNvmlError(Code.NOT_FOUND)

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{self.gpus.index(gpu) + 1:02X}:00.0")

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> Any:
        return self._of(gpu, lambda gpu: gpu.sm_mhz if clock == 1 else gpu.memory_mhz)

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, field_ids: list[int]) -> list[SimpleNamespace]:
        known = self._of(gpu, lambda gpu: {FIELD_IDS[reading]: value for reading, value in gpu.fields.items()})
        return [
            SimpleNamespace(
                fieldId=field_id,
                nvmlReturn=0 if field_id in known else int(Code.NOT_SUPPORTED),
                valueType=UNSIGNED_LONG_LONG,
                value=SimpleNamespace(ullVal=known.get(field_id, 0)),
            )
            for field_id in field_ids
        ]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        """Nothing to free."""

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, types: int, events: object) -> None:
        self._of(gpu, lambda _: True)

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> SimpleNamespace:
        try:
            return self._events.get(timeout=milliseconds / 1000)
        except queue.Empty:
            raise FakeNvmlError(Code.TIMEOUT) from None


def _busy(gpu: FakeGpu) -> SimpleNamespace | None:
    return None if gpu.gpu_percent is None else SimpleNamespace(gpu=gpu.gpu_percent, memory=gpu.memory_percent)


ANSWERS: dict[str, Callable[[FakeGpu], Any]] = {
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetMigMode": lambda _: [0, 0],
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_mw,
    "nvmlDeviceGetTemperature": lambda gpu: gpu.celsius,
    "nvmlDeviceGetUtilizationRates": _busy,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.throttle_bits,
    "nvmlDeviceGetSupportedEventTypes": lambda _: XID_EVENT,
}
"""What a function that takes one GPU answers for it. None is “not supported”."""
