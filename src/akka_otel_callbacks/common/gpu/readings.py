"""The readings of a GPU as a table: the NVML query of each, its scale, its metric and its rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from akka_otel_callbacks.common.gpu.devices import Device
from akka_otel_callbacks.common.gpu.nvml import EXPECTED, Code, Nvml, Unavailable
from akka_otel_callbacks.common.gpu.status import LOST, STATES, attributes, states
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric


class Rule(Enum):
    """How the samples since the previous export become one figure."""

    MEAN = "mean"
    LATEST = "latest"
    BITS = "bitwise OR"
    GROWTH = "growth since the first sample"


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """One series of every GPU.

    Attributes:
        reading: the key of the raw reading that `read` gives.
        divisor: from NVML's unit to the metric's; samples are summed up in NVML's, which is exact.
        least, most: raw values outside are NVML's way of saying “unknown” (a powered GPU never draws 0 mW) and
            are left out.
        of_slice: a figure of the MIG slice that the process holds; the others are figures of the whole GPU.
        describes: the series also says what the GPU is, for joins.
    """

    metric: Metric
    reading: str
    rule: Rule
    divisor: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    least: float = 0
    most: float = 2**63
    of_slice: bool = False
    describes: bool = False


GPU_TYPE = {names.ATTR_HW_TYPE.name: names.HwType.GPU}
GENERAL_TASK = {names.ATTR_HW_GPU_TASK.name: names.HwGpuTask.GENERAL}


def _sensor(location: str) -> dict[str, str]:
    return {**GPU_TYPE, names.ATTR_HW_SENSOR_LOCATION.name: location}


def _clock(domain: str) -> dict[str, str]:
    return {names.ATTR_GPU_CLOCK_DOMAIN.name: domain}


def _error(kind: str) -> dict[str, str]:
    return {names.ATTR_ERROR_TYPE.name: kind}


FIGURES: tuple[Figure, ...] = (
    Figure(names.HW_POWER, "power_mw", Rule.MEAN, 1000, GPU_TYPE, least=1),
    Figure(names.HW_ENERGY, "energy_mj", Rule.GROWTH, 1000, GPU_TYPE),
    Figure(names.HW_TEMPERATURE, "gpu_celsius", Rule.LATEST, 1, _sensor(names.HwSensorLocation.GPU), least=1),
    Figure(names.HW_TEMPERATURE, "memory_celsius", Rule.LATEST, 1, _sensor(names.HwSensorLocation.MEMORY), least=1),
    Figure(names.HW_GPU_UTILIZATION, "gpu_percent", Rule.MEAN, 100, GENERAL_TASK, most=100),
    Figure(names.HW_GPU_MEMORY_USAGE, "memory_used", Rule.LATEST, of_slice=True),
    Figure(names.HW_GPU_MEMORY_LIMIT, "memory_total", Rule.LATEST, least=1, of_slice=True, describes=True),
    Figure(names.HW_GPU_MEMORY_UTILIZATION, "memory_full", Rule.LATEST, most=1, of_slice=True),
    Figure(names.HW_ERRORS, "ecc_corrected", Rule.GROWTH, 1, {**GPU_TYPE, **_error(names.ErrorType.CORRECTED)}),
    Figure(names.HW_ERRORS, "ecc_uncorrected", Rule.GROWTH, 1, {**GPU_TYPE, **_error(names.ErrorType.UNCORRECTED)}),
    Figure(names.GPU_CLOCK_FREQUENCY, "sm_hz", Rule.MEAN, 1, _clock(names.GpuClockDomain.SM), least=1),
    Figure(names.GPU_CLOCK_FREQUENCY, "memory_hz", Rule.MEAN, 1, _clock(names.GpuClockDomain.MEMORY), least=1),
    Figure(names.GPU_CLOCK_THROTTLE_REASONS, "throttle_bits", Rule.BITS),
    Figure(names.GPU_MEMORY_ACTIVITY, "memory_percent", Rule.MEAN, 100, most=100),
    Figure(names.GPU_MEMORY_PAGES_RETIRED, "pages_corrected", Rule.LATEST, 1, _error(names.ErrorType.CORRECTED)),
    Figure(names.GPU_MEMORY_PAGES_RETIRED, "pages_uncorrected", Rule.LATEST, 1, _error(names.ErrorType.UNCORRECTED)),
    Figure(names.GPU_MEMORY_REPAIR_PENDING, "repair_pending", Rule.LATEST),
    Figure(names.GPU_MEMORY_ROWS_REMAPPED, "rows_corrected", Rule.LATEST, 1, _error(names.ErrorType.CORRECTED)),
    Figure(names.GPU_MEMORY_ROWS_REMAPPED, "rows_uncorrected", Rule.LATEST, 1, _error(names.ErrorType.UNCORRECTED)),
)

FIGURES += tuple(Figure(names.HW_STATUS, state, Rule.LATEST, 1, attributes(state), describes=True) for state in STATES)

METRICS = tuple(dict.fromkeys(figure.metric for figure in FIGURES))

Raw = dict[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One call of NVML and the raw readings that it gives.

    Attributes:
        functions: the generations of the call's name, the newest first.
        arguments: what follows the device handle.
        of_slice: it answers for a MIG slice.
        older: what is asked where this gives no answer.
    """

    functions: tuple[str, ...]
    readings: Callable[[Any], Raw]
    arguments: tuple[int, ...] = ()
    of_slice: bool = False
    older: Query | None = None


MEGA = 1_000_000
CLOCK_SM, CLOCK_MEMORY, SENSOR_GPU = 1, 2, 0  # numbers of NVML's ABI, as the field IDs below
SECOND_MEMORY_CALL = 0x02000028
"""The version of its struct. What the driver reserves is in `used` of the first call, and not in that of the second."""
ANY_CODE = range(1000)


def _memory(memory: Any) -> Raw:
    return {"memory_used": memory.used, "memory_total": memory.total}


QUERIES = (
    Query(("nvmlDeviceGetPowerUsage",), lambda milliwatts: {"power_mw": milliwatts}),
    Query(
        ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
        lambda celsius: {"gpu_celsius": celsius},
        (SENSOR_GPU,),
    ),
    Query(("nvmlDeviceGetUtilizationRates",), lambda busy: {"gpu_percent": busy.gpu, "memory_percent": busy.memory}),
    Query(("nvmlDeviceGetClockInfo",), lambda mhz: {"sm_hz": mhz * MEGA}, (CLOCK_SM,)),
    Query(("nvmlDeviceGetClockInfo",), lambda mhz: {"memory_hz": mhz * MEGA}, (CLOCK_MEMORY,)),
    Query(
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        lambda bits: {"throttle_bits": bits},
    ),
    Query(
        ("nvmlDeviceGetMemoryInfo",),
        _memory,
        (SECOND_MEMORY_CALL,),
        of_slice=True,
        older=Query(("nvmlDeviceGetMemoryInfo",), _memory, of_slice=True),
    ),
)

FIELDS = {
    1: "ecc_on",
    3: "ecc_corrected",  # single-bit, since the driver was loaded
    4: "ecc_uncorrected",  # double-bit
    29: "pages_corrected",
    30: "pages_uncorrected",
    31: "pages_pending",
    82: "memory_celsius",
    83: "energy_mj",  # since the driver was loaded
    142: "rows_corrected",
    143: "rows_uncorrected",
    144: "rows_pending",
}
"""NVML's field values that are read in one batch, by their ID."""

FIELD_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
NOT_AVAILABLE = frozenset({-1, 2**32 - 1, 2**64 - 1})
"""NVML_VALUE_NOT_AVAILABLE in the widths that it comes in."""


def read(nvml: Nvml, device: Device, *, whole: bool, slice_: bool) -> Raw:
    """The raw readings that NVML has of a device.

    Args:
        whole: with the figures of a whole GPU.
        slice_: with those that a MIG slice has of its own.
    """
    raw: Raw = {}
    for query in QUERIES:
        if slice_ if query.of_slice else whole:
            raw.update(_ask(nvml, device, query))
    if whole:
        raw.update(_fields(nvml, device.handle))
    return derived({key: value for key, value in raw.items() if value not in NOT_AVAILABLE})


def _ask(nvml: Nvml, device: Device, query: Query) -> Raw:
    expected = ANY_CODE if query.older else EXPECTED
    answer = nvml.ask(*query.functions, to=(device.handle, *query.arguments), expected=expected)
    if not isinstance(answer, Unavailable):
        return query.readings(answer)
    if answer.code == Code.GPU_IS_LOST:
        return {LOST: 1}
    return _ask(nvml, device, query.older) if query.older else {}


def _fields(nvml: Nvml, handle: Any) -> Raw:
    answer = nvml.ask("nvmlDeviceGetFieldValues", to=(handle, list(FIELDS)))
    if isinstance(answer, Unavailable):
        return {}
    return {
        FIELDS[value.fieldId]: getattr(value.value, FIELD_TYPES[value.valueType])
        for value in answer
        if value.nvmlReturn == 0 and value.fieldId in FIELDS and 0 <= value.valueType < len(FIELD_TYPES)
    }


def derived(raw: Raw) -> Raw:
    """The readings with what follows from several of them, and without what others make meaningless."""
    found = dict(raw)
    if found.get("memory_total"):
        found["memory_full"] = found.get("memory_used", -1) / found["memory_total"]
    else:
        found.pop("memory_used", None)  # a GPU that shares the host's memory says 0 of 0
    if not found.get("ecc_on"):
        found.pop("ecc_corrected", None)
        found.pop("ecc_uncorrected", None)
    if "rows_corrected" in found or "rows_uncorrected" in found:  # Ampere and later remap rows and retire no pages
        found.pop("pages_corrected", None)
        found.pop("pages_uncorrected", None)
    pending = [found[key] for key in ("rows_pending", "pages_pending") if key in found]
    if pending:
        found["repair_pending"] = int(any(pending))
    return {**found, **states(found)}


def figure_value(figure: Figure, raw: Raw) -> float | None:
    """The figure in NVML's unit, None where it is unknown."""
    value = raw.get(figure.reading)
    return value if value is not None and figure.least <= value <= figure.most else None
