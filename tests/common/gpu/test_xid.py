"""XIDs through NVML's event set: counted, kept, logged, and waited for again after a loss."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from akka_otel_callbacks.common.gpu import xid
from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.gpu.nvml import Code, Nvml
from akka_otel_callbacks.common.gpu.xid import XidWatcher
from akka_otel_callbacks.common.gpu.xid_codes import CAUSES, XIDS, cause_of, describe
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import GpuXidCause
from tests.fake_nvml import FakeDriver
from tests.support.otlp_sink import wait_until

A, B, MIG = "GPU-aaaa", "GPU-bbbb", "MIG-cccc"
Start = Callable[..., XidWatcher]


@pytest.fixture
def start(driver: FakeDriver) -> Iterator[Start]:
    """Starts a watcher of the claimed GPUs, which waits for events when it is returned; ends it after the test."""
    started: list[XidWatcher] = []

    def begin(*device_ids: str, registered: bool = True) -> XidWatcher:
        nvml = Nvml()
        devices = Devices(nvml, device_ids, {})
        devices.refresh()
        watcher = XidWatcher(nvml, devices, wait_ms=50, first_pause_s=0.02)
        started.append(watcher)
        waits = driver.state.waits
        watcher.start()
        if registered:
            wait_until(lambda: driver.state.waits > waits)
        return watcher

    yield begin
    for watcher in started:
        watcher.stop(timeout_s=60)


def by_cause(watcher: XidWatcher) -> dict[tuple[str, str], float]:
    points = watcher.points(names.GPU_XID_CAUSES)
    return {(str(at["hw.id"]), str(at[names.ATTR_GPU_XID_CAUSE.name])): value for value, at in points}


def errors(watcher: XidWatcher) -> dict[str, float]:
    return {str(attributes["hw.id"]): value for value, attributes in watcher.points(names.GPU_XID_ERRORS)}


def last(watcher: XidWatcher) -> dict[str, float]:
    return {str(attributes["hw.id"]): value for value, attributes in watcher.points(names.GPU_XID_LAST)}


def test_the_count_starts_at_zero_and_the_code_is_absent(driver: FakeDriver, start: Start) -> None:
    driver.gpu(A)
    driver.gpu(B)
    watcher = start(A, B)
    assert errors(watcher) == {A: 0, B: 0}
    assert by_cause(watcher) == {(gpu, cause): 0 for gpu in (A, B) for cause in CAUSES}
    assert last(watcher) == {}


def test_an_event_before_the_first_export(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.xid(gpu, 79)
    wait_until(lambda: last(watcher))
    assert errors(watcher) == {A: 1}
    assert last(watcher) == {A: 79}


def test_the_same_code_twice_is_two_errors(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.xid(gpu, 31)
    wait_until(lambda: errors(watcher) == {A: 1})
    assert last(watcher) == {A: 31}
    driver.xid(gpu, 31)
    wait_until(lambda: errors(watcher) == {A: 2})
    assert last(watcher) == {A: 31}


def test_each_gpu_has_its_own(driver: FakeDriver, start: Start) -> None:
    first, second = driver.gpu(A), driver.gpu(B)
    watcher = start(B, A)
    for gpu, code in [(second, 48), (first, 13), (second, 63)]:
        driver.xid(gpu, code)
    wait_until(lambda: sum(errors(watcher).values()) == 3)
    assert errors(watcher) == {A: 1, B: 2}
    assert last(watcher) == {A: 13, B: 63}


def test_a_fault_of_the_hardware_is_still_seen_when_others_follow_it(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    for code in (48, 63, 999, 45, 45):
        driver.xid(gpu, code)
    wait_until(lambda: errors(watcher) == {A: 5})
    assert last(watcher) == {A: 45}
    assert by_cause(watcher) == {
        (A, GpuXidCause.HARDWARE): 1,
        (A, GpuXidCause.INFORMATIONAL): 1,
        (A, GpuXidCause.UNKNOWN): 1,
        (A, GpuXidCause.APPLICATION): 2,
    }


@pytest.mark.parametrize("code", [0, 999, 2**31])
def test_codes_that_are_unknown_are_kept(
    driver: FakeDriver, start: Start, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.xid(gpu, code)
    wait_until(lambda: last(watcher) == {A: code})
    assert f"XID {code} on {A}" in caplog.text
    assert "no meaning is known here" in caplog.text


def test_every_xid_is_a_warning_with_its_gpu_and_meaning(
    driver: FakeDriver, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    for code in (31, 31, 63, 79):
        driver.xid(gpu, code)
    wait_until(lambda: errors(watcher) == {A: 4})
    assert [(r.levelno, r.message) for r in caplog.records] == [
        (logging.WARNING, f"XID {code} on {A} (NVIDIA H100 80GB HBM3): {meaning}")
        for code, meaning in [
            (31, "GPU memory page fault; usually a fault of the application"),
            (31, "GPU memory page fault; usually a fault of the application"),
            (63, "memory row remapped or page retired; informational"),
            (79, "GPU has fallen off the bus; usually the hardware or the driver"),
        ]
    ]


def test_an_event_of_another_kind_is_no_xid(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A, event_types=0x8 | 0x1)
    watcher = start(A)
    driver.xid(gpu, 5, type_=0x1)
    driver.xid(gpu, 13)
    wait_until(lambda: last(watcher))
    assert errors(watcher) == {A: 1}


# GPUs that deliver none


def test_a_gpu_without_events_has_no_series(
    driver: FakeDriver, start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xid, "LONGEST_PAUSE_S", 0.05)  # when a GPU that was lost would be tried again
    driver.gpu(A, event_types=0)
    watched = driver.gpu(B)
    watcher = start(A, B)
    time.sleep(0.2)
    assert errors(watcher) == {B: 0}
    assert driver.calls("nvmlDeviceGetSupportedEventTypes", watched) == 1, "the others are not registered again for it"
    assert [r.message for r in caplog.records] == [
        f"NVML delivers no XIDs for {A} (no XIDs among its events); they are not counted"
    ]


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"]
)
def test_a_driver_without_events(
    driver: FakeDriver, start: Start, caplog: pytest.LogCaptureFixture, function: str
) -> None:
    driver.gpu(A)
    driver.fail(function, Code.NOT_SUPPORTED)
    watcher = start(A, registered=False)
    wait_until(lambda: driver.calls(function) + driver.calls(function, driver.state.gpus[0]) >= 3)
    assert errors(watcher) == {}
    assert last(watcher) == {}
    assert [r.message for r in caplog.records] == [
        f"NVML delivers no XIDs for {A} (Not Supported); they are not counted"
    ]


# Loss and return


def test_a_lost_gpu_keeps_its_count_and_the_others_are_watched(driver: FakeDriver, start: Start) -> None:
    lost, healthy = driver.gpu(A), driver.gpu(B)
    watcher = start(A, B)
    driver.xid(lost, 79)
    wait_until(lambda: last(watcher) == {A: 79})
    driver.fail("*", Code.GPU_IS_LOST, lost)
    driver.fail("nvmlEventSetWait_v2", Code.GPU_IS_LOST)
    registered = driver.calls("nvmlDeviceRegisterEvents", healthy)
    wait_until(lambda: driver.calls("nvmlDeviceRegisterEvents", healthy) > registered)
    driver.state.rule_count -= 1  # the wait works again, for the GPU that is left
    driver.xid(healthy, 13)
    wait_until(lambda: last(watcher) == {A: 79, B: 13})
    assert errors(watcher) == {A: 1, B: 1}


def test_counts_go_on_after_a_driver_restart(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.xid(gpu, 119)
    wait_until(lambda: errors(watcher) == {A: 1})
    driver.fail("nvmlEventSetWait_v2", Code.UNKNOWN)
    driver.fail("nvmlInitWithFlags", Code.DRIVER_NOT_LOADED)
    driver.state.initialized = 0
    starts = driver.calls("nvmlInitWithFlags")
    wait_until(lambda: driver.calls("nvmlInitWithFlags") > starts)
    driver.heal()
    registered = driver.calls("nvmlDeviceRegisterEvents", gpu)
    wait_until(lambda: driver.calls("nvmlDeviceRegisterEvents", gpu) > registered)
    driver.xid(gpu, 120)
    wait_until(lambda: errors(watcher) == {A: 2})
    assert last(watcher) == {A: 120}


def test_a_wait_that_fails_at_once_does_not_spin(
    driver: FakeDriver, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xid, "LONGEST_PAUSE_S", 0.2)
    driver.gpu(A)
    driver.fail("nvmlEventSetWait_v2", Code.GPU_IS_LOST)
    watcher = start(A)
    waits, began = driver.state.waits, time.monotonic()
    wait_until(lambda: driver.state.waits > waits and time.monotonic() - began > 1)
    assert driver.state.waits - waits <= 4 + (time.monotonic() - began) / 0.2, "pauses of 0.02 s, doubled up to 0.2 s"
    assert errors(watcher) == {A: 0}


def test_event_sets_are_freed(driver: FakeDriver, start: Start) -> None:
    driver.gpu(A)
    watcher = start(A)
    driver.fail("nvmlEventSetWait_v2", Code.UNKNOWN)
    wait_until(lambda: driver.calls("nvmlEventSetCreate") >= 3)
    driver.heal()
    watcher.stop(timeout_s=60)
    assert driver.state.sets == 0


def test_a_gpu_that_fails_cannot_tell_its_uuid_any_more(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.fail("nvmlDeviceGetUUID", Code.GPU_IS_LOST, gpu)
    driver.xid(gpu, 79)
    wait_until(lambda: last(watcher) == {A: 79})


# Slices


def test_only_events_of_the_jobs_own_slice_count(driver: FakeDriver, start: Start) -> None:
    gpu = driver.gpu(A)
    driver.slice_of(gpu, MIG, instance=3)
    watcher = start(MIG)
    for _ in range(5):
        driver.xid(gpu, 31, instance=4)  # another job's
    driver.xid(gpu, 13, instance=3)
    driver.xid(gpu, 79)  # the whole GPU's
    wait_until(lambda: last(watcher) == {A: 79})
    assert errors(watcher) == {A: 2}


# The thread


def test_a_wait_that_hangs_does_not_stop_the_end(driver: FakeDriver, start: Start) -> None:
    driver.gpu(A)
    watcher = start(A)
    driver.hang("nvmlEventSetWait_v2")
    wait_until(lambda: driver.state.hangs)
    assert errors(watcher) == {A: 0}
    watcher.stop()
    assert watcher._thread is not None
    assert watcher._thread.is_alive(), "the wait that hangs is not waited for"
    driver.heal()


def test_an_event_after_the_end_is_left_to_others(
    driver: FakeDriver, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = driver.gpu(A)
    watcher = start(A)
    driver.hang("nvmlEventSetWait_v2")
    wait_until(lambda: driver.state.hangs)
    watcher.stop()
    driver.xid(gpu, 31)
    driver.heal()
    watcher.stop(timeout_s=60)
    assert driver.state.event_tail == 1, "the wait had the event"
    assert errors(watcher) == {A: 0}
    assert caplog.records == []


def test_no_wait_is_longer_than_a_second() -> None:
    assert xid.WAIT_MS <= 1000


# NVIDIA's meanings


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        ((13, 31, 43), GpuXidCause.APPLICATION),
        ((63, 92), GpuXidCause.INFORMATIONAL),
        ((48, 62, 64, 74, 79, 94, 95, 119, 120), GpuXidCause.HARDWARE),
        ((0, 999), GpuXidCause.UNKNOWN),
    ],
)
def test_where_to_look_first(codes: tuple[int, ...], cause: str) -> None:
    assert {cause_of(code) for code in codes} == {cause}


def test_every_meaning_fits_a_line() -> None:
    assert all(len(describe(code)) < 110 and "\n" not in describe(code) for code in XIDS)
