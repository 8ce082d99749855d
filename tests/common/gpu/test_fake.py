"""The GPUs that users get for their own tests answer as the real nvidia-ml-py does over a driver with the same GPUs."""

from __future__ import annotations

from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.gpu.readings import FIELDS
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point
from tests.fake_nvml import FakeDriver, Gpu
from tests.support.otlp_sink import wait_until

A, B = "GPU-aaaa", "GPU-bbbb"
ANSWERS = (
    "power_mw", "celsius", "gpu_percent", "memory_percent", "sm_mhz", "memory_mhz", "throttle_bits",
    "memory_used", "memory_total", "memory_reserved",
)  # fmt: skip


def sampled(health: GpuHealth, count: int = 1) -> dict[Metric, list[Point]]:
    for _ in range(count):
        health._sampler.sample()
    return {metric: health.points(metric) for metric in health.metrics}


def mirror(driver: FakeDriver, fake: FakeGpu) -> Gpu:
    gpu = driver.gpu(fake.uuid, fake.name, **{answer: getattr(fake, answer) for answer in ANSWERS})
    for field_id, reading in FIELDS.items():
        gpu.field(field_id, fake.fields.get(reading))
    return gpu


def test_both_fakes_give_the_same_points(driver: FakeDriver) -> None:
    first = FakeGpu(A, power_mw=123_456, throttle_bits=0x44, gpu_percent=7)
    second = FakeGpu(B, "NVIDIA L4", fields={"memory_celsius": 70, "pages_pending": 1, "pages_corrected": 2})
    for gpu in (second, first):
        mirror(driver, gpu)
    python = sampled(GpuHealth([A, B], backend=FakeNvml(first, second)))
    assert python == sampled(GpuHealth([A, B]))
    assert sum(len(points) for points in python.values()) > 20


def test_a_claim_is_every_gpu_unless_it_is_given() -> None:
    assert FakeNvml(FakeGpu(A), FakeGpu(B)).device_ids == (A, B)
    assert FakeNvml(FakeGpu(A), FakeGpu(B), device_ids=(B,)).device_ids == (B,)
    assert len(FakeNvml().device_ids) == 1


def test_a_gpu_changes_while_the_program_runs() -> None:
    gpu = FakeGpu()
    nvml = FakeNvml(gpu)
    health = GpuHealth(nvml.device_ids, backend=nvml)
    sampled(health)
    gpu.power_mw, gpu.fields["energy_mj"] = 350_000, 2_000
    points = sampled(health)
    assert points[names.HW_POWER][0][0] == 350
    assert points[names.HW_ENERGY][0][0] == 2
    gpu.power_mw = None
    assert sampled(health)[names.HW_POWER] == []


def test_a_lost_gpu() -> None:
    gpu = FakeGpu()
    health = GpuHealth(FakeNvml(gpu).device_ids, backend=FakeNvml(gpu))
    sampled(health)
    gpu.lost = True
    assert sampled(health)[names.HW_TEMPERATURE] == []


def test_xids_arrive() -> None:
    gpus = FakeGpu(A), FakeGpu(B)
    nvml = FakeNvml(*gpus)
    health = GpuHealth(nvml.device_ids, backend=nvml, interval_s=0.05)
    health.start()
    nvml.xid(31)
    nvml.xid(48, gpus[1])
    wait_until(lambda: len(health.points(names.GPU_XID_LAST)) == 2)
    assert {attributes["hw.id"]: value for value, attributes in health.points(names.GPU_XID_LAST)} == {A: 31, B: 48}
    health.stop()


def test_a_gpu_that_fell_off_the_bus_has_failed_though_nvml_tells_nothing_more() -> None:
    gpus = FakeGpu(A), FakeGpu(B)
    nvml = FakeNvml(*gpus)
    health = GpuHealth(nvml.device_ids, backend=nvml, interval_s=100)
    health.start()
    wait_until(lambda: len(health.points(names.GPU_XID_ERRORS)) == 2)
    nvml.xid(31, gpus[1])
    nvml.xid(79)
    nvml.xid(43)
    wait_until(lambda: (43, A) in [(code, at["hw.id"]) for code, at in health.points(names.GPU_XID_LAST)])
    points = health.points(names.HW_STATUS)
    health.stop()
    states = {(at["hw.id"], at["hw.state"]): value for value, at in points}
    assert len(states) == len(points) == 8
    assert {series for series, value in states.items() if value} == {(A, "failed"), (B, "ok")}
    assert len({(*at,) for _, at in points}) == 1, "the attributes of all series, in one order"
    assert {(*at,) for _, at in health._sampler.points(names.HW_STATUS)} == {(*points[0][1],)}


def test_a_driver_that_does_not_tell_its_reserve_apart() -> None:
    gpu = FakeGpu(memory_used=10, memory_reserved=None)
    assert sampled(GpuHealth(backend=FakeNvml(gpu), device_ids=[gpu.uuid]))[names.HW_GPU_MEMORY_USAGE][0][0] == 10


def test_what_pynvml_does_not_have_the_fake_does_not_invent() -> None:
    assert not hasattr(FakeNvml(), "nvmlDeviceGetFuture")
