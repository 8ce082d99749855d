"""Ray's metrics in the form of prometheus_client's, every series with the run's labels.

vLLM has such classes, too, but they need Ray Serve.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, ClassVar

from ray.util import metrics as ray_metrics

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import forwarded
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.text import underscored
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.state import STATE

HOLD_S = 5.0
LABELLED_BY = (names.ATTR_RUN_ID, names.ATTR_RUN_ATTEMPT, names.ATTR_K8S_POD_NAME)


def run_labels() -> dict[str, str]:
    """The run and its attempt as the driver handed them on, and this process's own pod, under the names that they
    have in Prometheus."""
    attributes = identify(os.environ, engine={}, arguments=forwarded()).attributes
    return {
        underscored(attribute.name): str(attributes[attribute.name])
        for attribute in LABELLED_BY
        if attribute.name in attributes
    }


class RayMetric:
    """What the three kinds have in common. `labels` gives a copy with values for its labels, as prometheus_client
    does."""

    make: ClassVar[Any]

    def __init__(
        self, name: str, documentation: str = "", labelnames: Iterable[str] | None = None, **options: Any
    ) -> None:
        self._names = tuple(labelnames or ())
        self._tags: dict[str, str] = {}
        run = run_labels()
        self._metric = self.make(underscored(name), documentation, tag_keys=(*self._names, *run), **options)
        self._metric.set_default_tags(run)

    def labels(self, *values: object, **named: object) -> RayMetric:
        labelled = copy.copy(self)
        pairs = {**dict(zip(self._names, values, strict=not named)), **named}
        labelled._tags = {name: str(value) for name, value in pairs.items()}
        return labelled


class Gauge(RayMetric):
    """A gauge whose values are held. Ray drops a series some 20 s after its last `set`, and vLLM sets whether the
    engine is awake only when that changes."""

    make = ray_metrics.Gauge

    def __init__(self, *args: Any, multiprocess_mode: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # Ray keeps the processes apart by itself
        self._held: dict[tuple[tuple[str, str], ...], float] = {}  # one dict for all labelled copies
        STATE.gauges.append(self)

    def set(self, value: float) -> None:
        self._held[tuple(self._tags.items())] = value
        self._metric.set(value, tags=self._tags)

    def set_to_current_time(self) -> None:
        """Not held: vLLM does this with labels that come and go."""
        self._metric.set(time.time(), tags=self._tags)

    def hold(self) -> None:
        for tags, value in list(self._held.items()):
            self._metric.set(value, tags=dict(tags))


def hold_gauges() -> None:
    """Sets every gauge's values anew, from now on and for as long as the process lives, on a thread of its own."""
    threading.Thread(target=_hold_forever, name="akka-otel-gauges", daemon=True).start()


def _hold_forever() -> None:
    while True:
        time.sleep(HOLD_S)
        _hold()


@guarded
def _hold() -> None:
    for gauge in list(STATE.gauges):
        gauge.hold()


class Counter(RayMetric):
    make = ray_metrics.Counter

    def inc(self, value: float = 1.0) -> None:
        if value > 0:  # Ray refuses a 0
            self._metric.inc(value, tags=self._tags)


class Histogram(RayMetric):
    make = ray_metrics.Histogram

    def __init__(self, *args: Any, buckets: Iterable[float], **kwargs: Any) -> None:
        super().__init__(*args, boundaries=[bound for bound in buckets if bound > 0], **kwargs)

    def observe(self, value: float) -> None:
        self._metric.observe(value, tags=self._tags)
