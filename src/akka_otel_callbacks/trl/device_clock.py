"""The time that a reward model takes on a GPU, which goes on computing after the Python call has returned."""

from __future__ import annotations

import sys
from typing import Any

from akka_otel_callbacks.common.guard import guarded

CUDA = "cuda"


class DeviceClock:
    """Measures the time from its creation to `stop`, on the device's own stream. Only `seconds` waits for the
    device."""

    def __init__(self, cuda: Any, device: Any) -> None:
        self._stream = cuda.current_stream(device)
        self._begin, self._end = (cuda.Event(enable_timing=True) for _ in range(2))
        self._begin.record(self._stream)

    @guarded
    def stop(self) -> None:
        self._end.record(self._stream)

    def seconds(self) -> float:
        """Waits for the device: only on the translator's thread."""
        self._end.synchronize()
        return float(self._begin.elapsed_time(self._end)) / 1000


@guarded
def device_clock(module: Any) -> DeviceClock | None:
    """The clock of a module. None if Python waits for the module, as on a CPU."""
    parameter = next(iter(module.parameters()), None)
    device = getattr(parameter, "device", None)
    if getattr(device, "type", None) != CUDA:
        return None
    return DeviceClock(sys.modules["torch"].cuda, device)  # type: ignore[attr-defined]
