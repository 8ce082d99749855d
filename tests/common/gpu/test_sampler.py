"""The health figures over several exports, through the real nvidia-ml-py and a scripted driver."""

from __future__ import annotations

import time
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from akka_otel_callbacks.common.export.instruments import observe
from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.gpu.fake import DRIVER
from akka_otel_callbacks.common.gpu.nvml import Code, Nvml
from akka_otel_callbacks.common.gpu.readings import FIELDS, METRICS, QUERIES
from akka_otel_callbacks.common.gpu.sampler import STALE_AFTER, Sampler
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from tests.fake_nvml import FakeDriver, Gpu
from tests.support.otlp_sink import wait_until

A, B, MIG = "GPU-aaaa", "GPU-bbbb", "MIG-cccc"
FIELD = {reading: field_id for field_id, reading in FIELDS.items()}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def sampler(*device_ids: str, clock: Clock | None = None, interval_s: float = 5.0) -> Sampler:
    nvml = Nvml()
    clock = clock or Clock()
    return Sampler(nvml, Devices(nvml, device_ids, {}, clock), interval_s, clock)


def values(source: Sampler, metric: Metric, reader: Any = None, **attributes: str) -> list[float]:
    """The values of a metric's points that have these attributes."""
    wanted = {attribute.replace("__", "."): value for attribute, value in attributes.items()}
    return [value for value, found in source.points(metric, reader) if wanted.items() <= found.items()]


def states(source: Sampler, uuid: str) -> dict[str, float]:
    points = [(value, at) for value, at in source.points(names.HW_STATUS) if at["hw.id"] == uuid]
    found = {str(at["hw.state"]): value for value, at in points}
    assert len(found) == len(points)
    return found


def data_centre(gpu: Gpu) -> Gpu:
    """With everything that an H100 has."""
    for reading, value in {
        "memory_celsius": 61,
        "energy_mj": 5_000_000,
        "ecc_on": 1,
        "ecc_corrected": 3,
        "ecc_uncorrected": 0,
        "rows_corrected": 2,
        "rows_uncorrected": 1,
        "rows_pending": 0,
    }.items():
        gpu.field(FIELD[reading], value)
    return gpu


def test_every_figure_of_a_data_centre_gpu(driver: FakeDriver) -> None:
    gpu = data_centre(driver.gpu(A, throttle_bits=0x4))
    source = sampler(A)
    source.sample()
    gpu.field(FIELD["energy_mj"], 5_012_500)
    gpu.field(FIELD["ecc_corrected"], 5)
    source.sample()

    identity = {"hw.id": A, "hw.name": "NVIDIA H100 80GB HBM3"}
    typed = {**identity, "hw.type": "gpu"}
    described = {**identity, "hw.model": "NVIDIA H100 80GB HBM3", "hw.vendor": "NVIDIA", "hw.driver_version": DRIVER}
    states = (("ok", 1), ("degraded", 0), ("failed", 0), ("predicted_failure", 0))
    domain = names.ATTR_GPU_CLOCK_DOMAIN.name
    assert {metric: source.points(metric) for metric in METRICS} == {
        names.HW_POWER: [(250.0, typed)],
        names.HW_ENERGY: [(12.5, typed)],
        names.HW_TEMPERATURE: [
            (50, {**typed, "hw.sensor_location": "gpu"}),
            (61, {**typed, "hw.sensor_location": "memory"}),
        ],
        names.HW_GPU_UTILIZATION: [(0.8, {**identity, "hw.gpu.task": "general"})],
        names.HW_GPU_MEMORY_USAGE: [(20 << 30, identity)],
        names.HW_GPU_MEMORY_LIMIT: [(80 << 30, described)],
        names.HW_GPU_MEMORY_UTILIZATION: [(0.25, identity)],
        names.HW_ERRORS: [(2, {**typed, "error.type": "corrected"}), (0, {**typed, "error.type": "uncorrected"})],
        names.GPU_CLOCK_FREQUENCY: [
            (1980e6, {**identity, domain: "sm"}),
            (2619e6, {**identity, domain: "memory"}),
        ],
        names.GPU_CLOCK_THROTTLE_REASONS: [(0x4, identity)],
        names.GPU_MEMORY_ACTIVITY: [(0.4, identity)],
        names.GPU_MEMORY_PAGES_RETIRED: [],
        names.GPU_MEMORY_REPAIR_PENDING: [(0, identity)],
        names.GPU_MEMORY_ROWS_REMAPPED: [
            (2, {**identity, "error.type": "corrected"}),
            (1, {**identity, "error.type": "uncorrected"}),
        ],
        names.HW_STATUS: [(value, {**described, "hw.type": "gpu", "hw.state": state}) for state, value in states],
    }


def test_every_attribute_is_one_that_the_registry_gives_the_metric(driver: FakeDriver) -> None:
    data_centre(driver.gpu(A))
    source = sampler(A)
    source.sample()
    for metric in METRICS:
        allowed = {attribute.name for attribute in metric.attributes}
        for _, attributes in source.points(metric):
            assert attributes.keys() <= allowed, metric.name


def test_means_and_bits_over_several_exports(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    source = sampler(A)
    for power_w, percent, bits in [(100, 10, 0x1), (200, 30, 0x4), (600, 80, 0x0)]:
        gpu.power_mw, gpu.gpu_percent, gpu.throttle_bits = power_w * 1000, percent, bits
        source.sample()
    assert values(source, names.HW_POWER) == [300]
    assert values(source, names.HW_GPU_UTILIZATION) == [0.4]
    assert values(source, names.GPU_CLOCK_THROTTLE_REASONS) == [0x5]

    gpu.power_mw, gpu.throttle_bits = 50_000, 0x8
    source.sample()
    assert values(source, names.HW_POWER) == [50], "the samples before the last export are no part of it"
    assert values(source, names.GPU_CLOCK_THROTTLE_REASONS) == [0x8]


def test_an_export_without_a_new_sample_shows_the_figure_before(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    source = sampler(A)
    source.sample()
    gpu.power_mw = 150_000
    source.sample()
    for _ in range(3):
        assert values(source, names.HW_POWER) == [200]


def test_nothing_is_published_before_the_first_sample(driver: FakeDriver) -> None:
    driver.gpu(A)
    source = sampler(A)
    assert [source.points(metric) for metric in METRICS] == [[]] * len(METRICS)


def test_each_reader_has_its_own_window(driver: FakeDriver) -> None:
    gpu = driver.gpu(A, throttle_bits=0x8)
    source = sampler(A)
    power = []
    for power_w in (100, 200, 300, 400):
        gpu.power_mw = power_w * 1000
        source.sample()
        gpu.throttle_bits = 0
        power += values(source, names.HW_POWER, reader="fast")
        values(source, names.GPU_CLOCK_THROTTLE_REASONS, reader="fast")
        if power_w == 200:
            assert values(source, names.HW_POWER, reader="slow") == [150]
    assert power == [100, 200, 300, 400]
    assert values(source, names.HW_POWER, reader="slow") == [350]
    assert values(source, names.HW_POWER, reader="late") == [250], "its window opened with the job"
    assert values(source, names.GPU_CLOCK_THROTTLE_REASONS, reader="slow") == [0x8]


def test_figures_reach_an_sdk_reader_as_the_registrys_instruments(driver: FakeDriver) -> None:
    data_centre(driver.gpu(A))
    source = sampler(A)
    source.sample()
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    for metric in METRICS:
        observe(provider.get_meter("test"), metric, lambda metric=metric: source.points(metric))
    exported = {
        metric.name: metric
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert exported.keys() == {metric.name for metric in METRICS} - {names.GPU_MEMORY_PAGES_RETIRED.name}
    assert exported["hw.energy"].data.is_monotonic
    assert not exported["hw.gpu.memory.usage"].data.is_monotonic
    assert exported["hw.power"].unit == "W"
    provider.shutdown()


# What NVML does not give


HEALTH_QUERIES = [function for query in QUERIES for function in query.functions] + [
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetFieldValues",
]


@pytest.mark.parametrize("code", [Code.NOT_SUPPORTED, Code.NO_PERMISSION, Code.UNKNOWN])
def test_a_gpu_of_which_nothing_can_be_read(driver: FakeDriver, code: int) -> None:
    data_centre(driver.gpu(A))
    for function in HEALTH_QUERIES:
        driver.fail(function, code)
    source = sampler(A)
    for _ in range(2):
        source.sample()
        assert [source.points(metric) for metric in METRICS] == [[]] * len(METRICS)


def test_a_consumer_gpu_has_no_field_values(driver: FakeDriver) -> None:
    driver.gpu(A, "NVIDIA GeForce RTX 4090")
    source = sampler(A)
    source.sample()
    absent = {m for m in METRICS if not source.points(m)}
    assert absent == {
        names.HW_ENERGY,
        names.HW_ERRORS,
        names.GPU_MEMORY_PAGES_RETIRED,
        names.GPU_MEMORY_REPAIR_PENDING,
        names.GPU_MEMORY_ROWS_REMAPPED,
    }
    assert values(source, names.HW_TEMPERATURE, hw__sensor_location="memory") == []


@pytest.mark.parametrize(
    ("answers", "metric"),
    [
        ({"power_mw": 0}, names.HW_POWER),
        ({"power_mw": 2**32 - 1}, names.HW_POWER),
        ({"celsius": 0}, names.HW_TEMPERATURE),
        ({"sm_mhz": 0, "memory_mhz": 0}, names.GPU_CLOCK_FREQUENCY),
        ({"gpu_percent": 101}, names.HW_GPU_UTILIZATION),
        ({"memory_percent": 2**32 - 1}, names.GPU_MEMORY_ACTIVITY),
        ({"memory_total": 0, "memory_used": 0}, names.HW_GPU_MEMORY_LIMIT),
        ({"memory_total": 0, "memory_used": 0}, names.HW_GPU_MEMORY_USAGE),
        ({"memory_total": 0, "memory_used": 0}, names.HW_GPU_MEMORY_UTILIZATION),
        ({"memory_used": 2**64 - 1}, names.HW_GPU_MEMORY_USAGE),
        ({"memory_used": 2**64 - 1}, names.HW_GPU_MEMORY_UTILIZATION),
    ],
)
def test_a_number_that_stands_for_unknown_is_absent(
    driver: FakeDriver, answers: dict[str, int], metric: Metric
) -> None:
    driver.gpu(A, **answers)
    source = sampler(A)
    source.sample()
    assert source.points(metric) == []


def test_a_memory_sensor_that_reads_zero_is_absent(driver: FakeDriver) -> None:
    driver.gpu(A).field(FIELD["memory_celsius"], 0)
    source = sampler(A)
    source.sample()
    assert values(source, names.HW_TEMPERATURE, hw__sensor_location="memory") == []


def test_an_idle_gpu_is_0_and_not_absent(driver: FakeDriver) -> None:
    driver.gpu(A, gpu_percent=0, memory_percent=0, memory_used=0)
    source = sampler(A)
    source.sample()
    for metric in (names.HW_GPU_UTILIZATION, names.GPU_MEMORY_ACTIVITY, names.HW_GPU_MEMORY_USAGE):
        assert values(source, metric) == [0]
    assert values(source, names.HW_GPU_MEMORY_UTILIZATION) == [0]


def test_ecc_that_is_off_has_no_errors(driver: FakeDriver) -> None:
    gpu = data_centre(driver.gpu(A))
    gpu.field(FIELD["ecc_on"], 0)
    source = sampler(A)
    source.sample()
    assert source.points(names.HW_ERRORS) == []


@pytest.mark.parametrize(
    ("throttle_bits", "field", "state"),
    [
        (0x0, {}, "ok"),
        (0x1 | 0x2 | 0x4 | 0x20, {}, "ok"),
        (0x8, {}, "ok"),
        (0x8 | 0x40, {}, "degraded"),
        (0x80, {}, "degraded"),
        (0x40, {"rows_pending": 1}, "predicted_failure"),
        (0x0, {"rows_pending": 1}, "predicted_failure"),
    ],
)
def test_the_state_is_the_gravest(driver: FakeDriver, throttle_bits: int, field: dict[str, int], state: str) -> None:
    gpu = data_centre(driver.gpu(A, throttle_bits=throttle_bits))
    for reading, value in field.items():
        gpu.field(FIELD[reading], value)
    source = sampler(A)
    source.sample()
    assert states(source, A) == {each: int(each == state) for each in names.ATTR_HW_STATE.values}
    gpu.throttle_bits = 0
    gpu.field(FIELD["rows_pending"], 0)
    source.sample()
    assert states(source, A)["ok"] == 1, "it is the latest sample's"


def test_what_the_driver_reserves_is_not_in_use(driver: FakeDriver) -> None:
    """As nvidia-smi counts. The first of NVML's two calls has the reserve in `used`."""
    gpu = driver.gpu(A, memory_used=10 << 30, memory_reserved=1 << 30, memory_total=40 << 30)
    source = sampler(A)
    source.sample()
    assert values(source, names.HW_GPU_MEMORY_USAGE) == [10 << 30]
    assert values(source, names.HW_GPU_MEMORY_UTILIZATION) == [0.25]
    assert driver.calls("nvmlDeviceGetMemoryInfo", gpu) == 0


@pytest.mark.parametrize("code", [Code.FUNCTION_NOT_FOUND, Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT, 25])
def test_a_driver_without_the_second_memory_call_has_the_first(
    driver: FakeDriver, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver.gpu(A, memory_used=10 << 30, memory_reserved=1 << 30, memory_total=40 << 30)
    driver.fail("nvmlDeviceGetMemoryInfo_v2", code)
    source = sampler(A)
    source.sample()
    assert values(source, names.HW_GPU_MEMORY_USAGE) == [11 << 30]
    assert values(source, names.HW_GPU_MEMORY_LIMIT) == [40 << 30]
    assert not [record for record in caplog.records if "MemoryInfo" in record.getMessage()], "nothing is absent"


def test_a_gpu_before_ampere_retires_pages(driver: FakeDriver) -> None:
    gpu = driver.gpu(A, "Tesla V100-SXM2-32GB")
    for reading, value in {"pages_corrected": 4, "pages_uncorrected": 1, "pages_pending": 1}.items():
        gpu.field(FIELD[reading], value)
    source = sampler(A)
    source.sample()
    assert values(source, names.GPU_MEMORY_PAGES_RETIRED, error__type="corrected") == [4]
    assert values(source, names.GPU_MEMORY_PAGES_RETIRED, error__type="uncorrected") == [1]
    assert values(source, names.GPU_MEMORY_REPAIR_PENDING) == [1]
    assert source.points(names.GPU_MEMORY_ROWS_REMAPPED) == []


def test_a_pending_row_repair(driver: FakeDriver) -> None:
    gpu = data_centre(driver.gpu(A))
    gpu.field(FIELD["rows_pending"], 1)
    source = sampler(A)
    source.sample()
    assert values(source, names.GPU_MEMORY_REPAIR_PENDING) == [1]


def test_a_field_value_that_is_a_float(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    gpu.field(FIELD["energy_mj"], 1000.0)
    source = sampler(A)
    source.sample()
    gpu.field(FIELD["energy_mj"], 3500.0)
    source.sample()
    assert values(source, names.HW_ENERGY) == [2.5]


# Loss


def test_a_gpu_that_is_lost_halfway(driver: FakeDriver) -> None:
    lost, healthy = data_centre(driver.gpu(A)), data_centre(driver.gpu(B))
    source = sampler(A, B)
    source.sample()
    lost.field(FIELD["energy_mj"], 5_003_000)
    source.sample()
    for metric in METRICS:
        source.points(metric)
    driver.fail("*", Code.GPU_IS_LOST, lost)
    healthy.power_mw = 300_000
    source.sample()

    gauges = [m for m in METRICS if m not in (names.HW_ENERGY, names.HW_ERRORS)]
    assert {m for m in gauges if values(source, m, hw__id=A)} == {names.HW_STATUS}
    assert states(source, A) == {"ok": 0, "degraded": 0, "failed": 1, "predicted_failure": 0}
    assert states(source, B) == {"ok": 1, "degraded": 0, "failed": 0, "predicted_failure": 0}
    assert values(source, names.HW_ENERGY, hw__id=A) == [3.0], "a counter stays at what was counted"
    assert values(source, names.HW_POWER, hw__id=B) == [300]


def test_a_mean_is_of_the_samples_that_there_were(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    source = sampler(A)
    source.sample()
    driver.fail("nvmlDeviceGetPowerUsage", Code.UNKNOWN, gpu)
    source.sample()
    assert values(source, names.HW_POWER) == [250]
    source.sample()
    assert values(source, names.HW_POWER) == []


def test_gauges_end_when_nvml_does_not_answer_any_more(driver: FakeDriver, caplog: pytest.LogCaptureFixture) -> None:
    gpu = data_centre(driver.gpu(A))
    clock = Clock()
    source = sampler(A, clock=clock)
    source.sample()
    gpu.field(FIELD["energy_mj"], 5_001_000)
    source.sample()
    clock.now = STALE_AFTER * 5.0
    assert values(source, names.HW_TEMPERATURE, hw__sensor_location="gpu") == [50]
    clock.now += 0.1
    for _ in range(2):
        gauges = [m for m in METRICS if m not in (names.HW_ENERGY, names.HW_ERRORS)]
        assert {m for m in gauges if source.points(m)} == set()
    assert values(source, names.HW_ENERGY) == [1.0]
    assert [record.message for record in caplog.records if "has not answered" in record.message] == [
        "NVML has not answered for 15 s; GPU figures are absent until it does (GPU-aaaa)"
    ]


def test_energy_goes_on_after_a_driver_restart(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    gpu.field(FIELD["energy_mj"], 10_000)
    source = sampler(A)
    source.sample()
    gpu.field(FIELD["energy_mj"], 14_000)
    source.sample()
    driver.state.initialized = 0
    source.sample()  # finds NVML gone
    gpu.field(FIELD["energy_mj"], 500)
    source.sample()
    assert values(source, names.HW_ENERGY) == [4.5]
    assert values(source, names.HW_POWER) == [250]


# Which GPUs


def test_only_the_jobs_own_gpus_are_read(driver: FakeDriver) -> None:
    driver.gpu(A)
    other = driver.gpu(B)
    source = sampler(A)
    source.sample()
    assert driver.called(other) == set()
    assert [attributes["hw.id"] for _, attributes in source.points(names.HW_POWER)] == [A]


def test_a_slice_has_its_memory_and_its_gpu_the_rest(driver: FakeDriver) -> None:
    gpu = data_centre(driver.gpu(A))
    driver.slice_of(gpu, MIG, instance=3, memory_used=1 << 30, memory_total=10 << 30)
    source = sampler(MIG)
    source.sample()
    assert {(metric, attributes["hw.id"]) for metric in METRICS for _, attributes in source.points(metric)} == {
        (metric, A) for metric in METRICS if source.points(metric)
    } - {
        (metric, A)
        for metric in (names.HW_GPU_MEMORY_USAGE, names.HW_GPU_MEMORY_LIMIT, names.HW_GPU_MEMORY_UTILIZATION)
    } | {
        (metric, MIG)
        for metric in (names.HW_GPU_MEMORY_USAGE, names.HW_GPU_MEMORY_LIMIT, names.HW_GPU_MEMORY_UTILIZATION)
    }
    assert values(source, names.HW_GPU_MEMORY_UTILIZATION) == [0.1]
    assert values(source, names.HW_POWER) == [250]
    ((_, limit),) = source.points(names.HW_GPU_MEMORY_LIMIT)
    assert limit["hw.name"] == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert limit["hw.model"] == "NVIDIA H100 80GB HBM3"


# The thread


def test_the_thread_samples_at_once_and_then_every_interval(driver: FakeDriver) -> None:
    gpu = driver.gpu(A)
    nvml = Nvml()
    source = Sampler(nvml, Devices(nvml, [A], {}), interval_s=0.05, clock=lambda: 0.0)
    source.start()
    source.start()
    wait_until(lambda: driver.calls("nvmlDeviceGetPowerUsage", gpu) >= 3)
    source.stop(timeout_s=60)
    assert values(source, names.HW_POWER) == [250], "the last export comes after the end"
    count = driver.calls("nvmlDeviceGetPowerUsage", gpu)
    time.sleep(0.2)
    assert driver.calls("nvmlDeviceGetPowerUsage", gpu) == count


@pytest.mark.parametrize("function", ["nvmlDeviceGetPowerUsage", "nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID"])
def test_a_call_that_hangs_stops_neither_the_export_nor_the_end(driver: FakeDriver, function: str) -> None:
    driver.gpu(A)
    driver.hang(function)
    nvml = Nvml()
    devices = Devices(nvml, [A], {})
    source = Sampler(nvml, devices, interval_s=0.05)
    source.start()
    wait_until(lambda: driver.state.hangs)
    assert [source.points(metric) for metric in METRICS] == [[]] * len(METRICS)
    assert [device for device in devices.held() if device is None] == []
    source.stop()
    assert source._thread is not None
    assert source._thread.is_alive(), "the call that hangs is not waited for"
    driver.heal()
    source.stop(timeout_s=60)
