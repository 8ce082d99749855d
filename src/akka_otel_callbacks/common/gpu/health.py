"""The GPUs of a process as one source of telemetry: what they are, how they are, and their XIDs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from akka_otel_callbacks.common import switches
from akka_otel_callbacks.common.gpu.device_ids import DeviceIds
from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.gpu.nvml import Nvml
from akka_otel_callbacks.common.gpu.sampler import Sampler
from akka_otel_callbacks.common.gpu.status import with_fallen
from akka_otel_callbacks.common.gpu.xid import XidWatcher
from akka_otel_callbacks.common.threads import exporting
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

SAMPLE_INTERVAL_S = 5.0


class GpuHealth:
    """NVML's figures of the devices that this process holds.

    Args:
        device_ids: CUDA ordinals and UUIDs. None for every device that CUDA shows to the process, empty for none.
        interval_s: seconds between two samples.
        backend: what stands in for pynvml in tests, such as `FakeNvml`.
        environ: where CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and AKKA_OTEL_GPU_DISABLE are looked up.
        off: never uses NVML, as with AKKA_OTEL_GPU_DISABLE: the devices are held, and nothing is said of them.
    """

    def __init__(
        self,
        device_ids: DeviceIds | None = None,
        *,
        interval_s: float = SAMPLE_INTERVAL_S,
        backend: Any = None,
        environ: Mapping[str, str] = os.environ,
        off: bool = False,
    ) -> None:
        self._off = off or switches.is_off(switches.GPUS, environ)
        nvml = Nvml(backend, off=self._off)
        self.devices = Devices(nvml, device_ids, environ)
        self._sampler = Sampler(nvml, self.devices, interval_s)
        self._watcher = XidWatcher(nvml, self.devices)

    metrics: tuple[Metric, ...] = (*Sampler.metrics, *XidWatcher.metrics)

    def start(self) -> None:
        """Starts two daemon threads, if the process holds a device and NVML is not off. It calls nothing that could
        block."""
        if self._off:
            self.devices.refresh()
        elif self.devices.device_ids is None or len(self.devices.device_ids):
            self._sampler.start()
            self._watcher.start()

    def stop(self) -> None:
        """Ends them, in at most 0.2 s. `points` stays readable."""
        self._watcher.stop()
        self._sampler.stop()

    def points(self, metric: Metric) -> list[Point]:
        """The metric's points for one export, from memory. Means and bit sets cover the samples since the previous
        export of the same exporter."""
        if metric in XidWatcher.metrics:
            return self._watcher.points(metric)
        points = self._sampler.points(metric, exporting())
        return with_fallen(points, self._watcher.fallen()) if metric is names.HW_STATUS else points
