"""The state of a GPU as OpenTelemetry's conventions have it: a series for each state, 1 for the one that holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import Point

if TYPE_CHECKING:
    from akka_otel_callbacks.common.gpu.devices import Device

STATES = names.ATTR_HW_STATE.values
LOST = "lost"
"""The reading of a GPU that NVML calls lost."""
HARDWARE_SLOWDOWN = 0x40 | 0x80
"""Thermal slowdown and power brake. The bit 0x8, which stands for both, is also set while the clocks change."""


def attributes(state: str) -> dict[str, str]:
    return {names.ATTR_HW_TYPE.name: names.HwType.GPU, names.ATTR_HW_STATE.name: state}


def states(raw: Mapping[str, float]) -> dict[str, float]:
    """1 or 0 by state, from the readings of a GPU. Empty where nothing could be read."""
    return only(_state(raw)) if raw else {}


def only(state: str) -> dict[str, float]:
    """1 for this state, 0 for the others."""
    return {each: int(each == state) for each in STATES}


def with_fallen(points: Iterable[Point], fallen: Sequence[Device]) -> list[Point]:
    """The points, with the GPUs that fell off the bus as failed. From then on NVML may hang, and tell nothing more."""
    uuids = {device.uuid for device in fallen}
    failed = only(names.HwState.FAILED).items()
    return [
        *(point for point in points if point[1][names.ATTR_HW_ID.name] not in uuids),
        *((value, {**device.description, **attributes(state)}) for device in fallen for state, value in failed),
    ]


def _state(raw: Mapping[str, float]) -> str:
    if raw.get(LOST):
        return names.HwState.FAILED
    if raw.get("repair_pending"):
        return names.HwState.PREDICTED_FAILURE
    if int(raw.get("throttle_bits", 0)) & HARDWARE_SLOWDOWN:
        return names.HwState.DEGRADED
    return names.HwState.OK
