"""Reads the process's GPUs every few seconds, on a thread of its own. Exports read the latest samples."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Hashable

from akka_otel_callbacks.common.gpu.devices import Device, Devices
from akka_otel_callbacks.common.gpu.nvml import Nvml
from akka_otel_callbacks.common.gpu.readings import FIGURES, METRICS, Figure, Rule, figure_value, read
from akka_otel_callbacks.common.gpu.windows import WINDOWS, Window
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

Series = tuple[str, Figure]
"""A device's UUID and a figure of it."""

STALE_AFTER = 3
"""Sampling intervals without a sample after which a GPU's gauges are absent: an NVML call hangs, and a figure that is
not measured any more must not look like one that is."""


class Sampler:
    """The health figures of the devices, by metric.

    A mean or an OR covers the samples since the reader's previous export, so every reader has windows of its own; a
    reader that comes later has one since the start. Where no sample was taken between two exports the figure of the
    export before stands, until it is `STALE_AFTER` intervals old. Counters stay at what they have counted.

    Args:
        interval_s: seconds between two samples.
        clock: seconds that never go back.
    """

    metrics = METRICS

    def __init__(
        self, nvml: Nvml, devices: Devices, interval_s: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml, self._devices, self._interval_s, self._clock = nvml, devices, interval_s, clock
        self._lock = threading.Lock()
        self._since_start: dict[Series, Window] = {}
        self._by_reader: dict[Hashable, dict[Series, Window]] = {}
        self._attributes: dict[Series, dict[str, str]] = {}
        self._sampled_at: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._said_stale = False

    def start(self) -> None:
        """Begins sampling, at once and then every interval. No call of NVML is made on the caller's thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="akka-otel-gpu", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 0.2) -> None:
        """Ends sampling; waits no longer than `timeout_s`, since a hanging driver would never let the thread go. The
        figures stay readable, for the last export."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.sample()
            self._stopping.wait(self._interval_s)

    @guarded
    def sample(self) -> None:
        """Takes one sample of every device. The sampler's thread calls it; a test may, in its place."""
        self._devices.refresh()
        devices = self._devices.reachable()
        divided = {device.gpu.uuid for device in devices if device.parent is not None}
        for device in devices:
            is_slice = device.parent is not None
            raw = read(self._nvml, device, whole=not is_slice, slice_=device.uuid not in divided)
            self._take_in(device, [f for f in FIGURES if (f.of_slice or not is_slice)], raw)

    def _take_in(self, device: Device, figures: list[Figure], raw: dict[str, float]) -> None:
        with self._lock:
            self._sampled_at[device.uuid] = self._clock()
            for figure in figures:
                series = (device.uuid, figure)
                if series not in self._attributes:
                    what = device.description if figure.describes else device.attributes
                    self._attributes[series] = {**what, **figure.attributes}
                value = figure_value(figure, raw)
                for windows in (self._since_start, *self._by_reader.values()):
                    if series not in windows:
                        windows[series] = WINDOWS[figure.rule]()
                    windows[series].add(value)

    def points(self, metric: Metric, reader: Hashable = None) -> list[Point]:
        """The metric's points for one export. Reads memory only, on whichever thread exports.

        Args:
            reader: who exports; each reader has a window of its own.
        """
        now = self._clock()
        with self._lock:
            if reader not in self._by_reader:
                self._by_reader[reader] = {series: copy.copy(window) for series, window in self._since_start.items()}
            points: list[Point] = []
            for (uuid, figure), window in self._by_reader[reader].items():
                if figure.metric is not metric:
                    continue
                value = window.take()
                if figure.rule is not Rule.GROWTH and self._is_stale(uuid, now):
                    continue
                if value is not None:
                    in_unit = value if figure.divisor == 1 else value / figure.divisor
                    points.append((in_unit, self._attributes[uuid, figure]))
            return points

    def _is_stale(self, uuid: str, now: float) -> bool:
        age_s = now - self._sampled_at[uuid]
        stale = age_s > STALE_AFTER * self._interval_s
        if stale and not self._said_stale and not self._stopping.is_set():
            self._said_stale = True
            logger.warning("NVML has not answered for %.0f s; GPU figures are absent until it does (%s)", age_s, uuid)
        return stale
