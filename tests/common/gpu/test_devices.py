"""Which GPUs a process holds: by UUID, whatever the orders of CUDA and NVML."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.gpu.device_ids import cuda_uuids, ray_device_ids, visible_devices
from akka_otel_callbacks.common.gpu.devices import GRACE_S, Devices
from akka_otel_callbacks.common.gpu.nvml import Code, Nvml
from tests.fake_nvml import FakeDriver

FAST, SLOW, OTHER = (
    "GPU-36e1567d-37ed-051e-f8ff-df807517b396",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932f000-0000-4106-c12f-20bd9faed9f6",
)
MIG = "MIG-1a2b3c4d-0000-5111-8222-933344445555"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Cuda:
    """torch.cuda of a process that sees these devices, in this order, once it uses CUDA."""

    def __init__(self, *uuids: str) -> None:
        self.uuids, self.initialized, self.asked = [uuid.split("-", 1)[1] for uuid in uuids], False, 0

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return len(self.uuids)

    def get_device_properties(self, ordinal: int) -> SimpleNamespace:
        self.asked += 1
        assert self.initialized, "this would have initialised CUDA"
        return SimpleNamespace(uuid=self.uuids[ordinal])


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def machine(driver: FakeDriver) -> FakeDriver:
    """Two GPUs; NVML lists the slow one first, CUDA the fast one."""
    driver.gpu(SLOW, "NVIDIA T4")
    driver.gpu(FAST, "NVIDIA H100 80GB HBM3")
    return driver


def use_cuda(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> Cuda:
    cuda = Cuda(*uuids)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return cuda


def held(device_ids: list[int | str] | None = None, **environ: str) -> list[str | None]:
    devices = Devices(Nvml(), device_ids, environ, Clock())
    devices.refresh()
    return uuids(devices)


def uuids(devices: Devices) -> list[str | None]:
    return [device and device.uuid for device in devices.held()]


def test_torchs_uuids_decide_not_the_index(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cuda(monkeypatch, FAST, SLOW).initialized = True
    assert held([0]) == [FAST]
    assert held([1]) == [SLOW]
    assert held() == [FAST, SLOW]


def test_cuda_is_not_asked_before_the_program_uses_it(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = use_cuda(monkeypatch, FAST, SLOW)
    devices = Devices(Nvml(), [0], {}, Clock())
    devices.refresh()
    assert devices.held() == ()
    assert cuda.asked == 0
    assert not devices.known.is_set()
    cuda.initialized = True
    devices.refresh()
    assert uuids(devices) == [FAST]
    assert devices.known.is_set()


def test_an_index_is_not_guessed(machine: FakeDriver) -> None:
    assert held([0]) == []
    assert held([0], CUDA_VISIBLE_DEVICES="1") == []
    assert held(CUDA_VISIBLE_DEVICES="0,1") == []


def test_an_index_by_pci_bus(driver: FakeDriver) -> None:
    driver.gpu(SLOW, bus_id="00000000:8A:00.0")
    driver.gpu(FAST, bus_id="00000000:1B:00.0")
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert held([0], **by_bus) == [FAST]
    assert held([0], CUDA_VISIBLE_DEVICES="1", **by_bus) == [SLOW]
    assert held(CUDA_VISIBLE_DEVICES="1,0", **by_bus) == [SLOW, FAST]
    assert held(**by_bus) == [FAST, SLOW]
    assert held(CUDA_VISIBLE_DEVICES="1,7,0", **by_bus) == [SLOW], "CUDA takes nothing after an index without a device"
    assert held(CUDA_VISIBLE_DEVICES="7", **by_bus) == []
    assert held([-1, 1, 2], **by_bus) == []


def test_a_single_gpu_needs_no_order(driver: FakeDriver) -> None:
    driver.gpu(FAST)
    assert held([0]) == [FAST]
    assert held(CUDA_VISIBLE_DEVICES="0") == [FAST]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (FAST, [FAST]),
        (f"{FAST},{SLOW}", [FAST, SLOW]),
        ("GPU-36e1", [FAST]),
        (f"GPU-8932f937,{FAST}", [SLOW, FAST]),
        ("", []),
        ("-1", []),
        ("-0", [SLOW]),
        ("NoDevFiles", []),
        (f"{FAST},{FAST}", []),
    ],
)
def test_uuids_in_cuda_visible_devices(machine: FakeDriver, visible: str, found: list[str]) -> None:
    assert held(CUDA_VISIBLE_DEVICES=visible, CUDA_DEVICE_ORDER="PCI_BUS_ID") == found


def test_an_abbreviation_that_two_gpus_share_names_neither(machine: FakeDriver) -> None:
    machine.gpu(OTHER)
    assert held(CUDA_VISIBLE_DEVICES="GPU-8932f") == []
    assert held(CUDA_VISIBLE_DEVICES="GPU-8932f0") == [OTHER]


def test_a_mig_slice_and_its_gpu(machine: FakeDriver) -> None:
    gpu = machine.state.gpus[1]
    machine.slice_of(gpu, MIG, instance=7)
    devices = Devices(Nvml(), None, {"CUDA_VISIBLE_DEVICES": MIG}, Clock())
    devices.refresh()
    (device,) = devices.held()
    assert (device.uuid, device.gpu.uuid, device.instance) == (MIG, FAST, 7)
    assert device.name.endswith("MIG 1g.10gb")
    assert [d.uuid for d in devices.reachable()] == [MIG, FAST]


@pytest.mark.parametrize("cuda_says", [MIG, FAST])
def test_a_container_that_sees_one_slice(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch, cuda_says: str) -> None:
    machine.slice_of(machine.state.gpus[1], MIG, instance=7)
    use_cuda(monkeypatch, cuda_says).initialized = True
    assert held([0]) == [MIG]


def test_a_gpu_of_several_slices_stays_the_gpu(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.slice_of(machine.state.gpus[1], MIG, instance=7)
    machine.slice_of(machine.state.gpus[1], MIG.replace("1a2b", "ffff"), instance=8)
    use_cuda(monkeypatch, FAST).initialized = True
    assert held([0]) == [FAST]


def test_a_process_that_holds_none(machine: FakeDriver) -> None:
    assert held([]) == []


def test_without_a_driver_the_claimed_devices_are_there_unread(driver: FakeDriver) -> None:
    driver.fail("nvmlInitWithFlags", Code.DRIVER_NOT_LOADED)
    assert held([0, 1]) == [None, None]
    assert held() == []


def test_a_driver_that_comes_later_is_found(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.fail("nvmlInitWithFlags", Code.DRIVER_NOT_LOADED)
    devices = Devices(Nvml(), None, {}, Clock())
    devices.refresh()
    assert devices.held() == ()
    use_cuda(monkeypatch, FAST, SLOW).initialized = True
    devices.refresh()
    assert devices.held() == (None, None)
    machine.heal()
    devices.refresh()
    assert uuids(devices) == [FAST, SLOW]


def test_what_cannot_be_told_is_given_up_after_the_grace(machine: FakeDriver) -> None:
    clock = Clock()
    devices = Devices(Nvml(), [0, FAST], {}, clock)
    devices.refresh()
    assert devices.held() == ()
    clock.now = GRACE_S + 1
    devices.refresh()
    assert uuids(devices) == [None, FAST]


def test_a_driver_that_hangs_leaves_the_placement_unread_after_the_grace(machine: FakeDriver) -> None:
    clock = Clock()
    devices = Devices(Nvml(), [FAST], {}, clock)
    assert devices.held() == ()
    devices._deadline = GRACE_S  # as a refresh leaves it that never returns
    clock.now = GRACE_S + 1
    assert devices.held() == (None,)


def test_a_lost_gpu_is_still_held_and_found_again(machine: FakeDriver) -> None:
    devices = Devices(Nvml(), [FAST], {}, Clock())
    devices.refresh()
    machine.state.initialized = 0  # the driver restarted
    devices._nvml.ask("nvmlDeviceGetCount")
    gpu = machine.state.gpus[1]
    machine.fail("*", Code.GPU_IS_LOST, gpu)
    devices.refresh()
    assert uuids(devices) == [FAST]
    assert devices.reachable() == []
    machine.heal()
    devices.refresh()
    assert [device.uuid for device in devices.reachable()] == [FAST]


def test_only_what_finding_needs_is_asked_of_other_gpus(machine: FakeDriver) -> None:
    held(CUDA_VISIBLE_DEVICES=FAST)
    assert machine.called(machine.state.gpus[0]) == set()
    held(CUDA_VISIBLE_DEVICES="GPU-36e1")
    assert machine.called(machine.state.gpus[0]) <= {"nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"}


# Ray


@pytest.mark.parametrize(
    ("ids", "visible", "device_ids"),
    [
        (["3"], "3", [0]),
        (["3"], "0,3", [1]),
        (["3"], None, [3]),
        ([FAST], FAST, [0]),
        ([FAST], None, [FAST]),
        ([MIG], MIG, [0]),
        (["0", "1"], "0,1", [0, 1]),
        ([], None, []),
        ([3], "3", [0]),
    ],
)
def test_the_devices_of_a_ray_worker(ids: list[str], visible: str | None, device_ids: list[int | str]) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert ray_device_ids(ids, environ) == device_ids


def test_a_ray_workers_index_goes_through_torch(machine: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    use_cuda(monkeypatch, SLOW).initialized = True  # CUDA_VISIBLE_DEVICES=1 of a machine whose CUDA order is FAST, SLOW
    environ = {"CUDA_VISIBLE_DEVICES": "1"}
    assert held(ray_device_ids(["1"], environ), **environ) == [SLOW]


# Foreign input


@given(st.text(alphabet="0123456789,+- xGPUMIab", max_size=20) | st.text(max_size=10).filter(lambda t: "\0" not in t))
def test_cuda_visible_devices_is_read_as_torch_reads_it(text: str) -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        os.environ["CUDA_VISIBLE_DEVICES"] = text
        expected = torch.cuda._parse_visible_devices()
    except (ValueError, UnicodeEncodeError):  # torch fails on "+", and on digits that int() does not know
        return
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
    assert visible_devices({"CUDA_VISIBLE_DEVICES": text}) == expected


def test_cuda_visible_devices_that_is_not_set() -> None:
    assert visible_devices({}) is None


@pytest.mark.parametrize("half", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace()), None])
def test_a_torch_that_is_half_imported(monkeypatch: pytest.MonkeyPatch, half: object) -> None:
    monkeypatch.setitem(sys.modules, "torch", half)
    assert cuda_uuids() is None


def test_a_torch_without_uuids(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = use_cuda(monkeypatch, FAST)
    cuda.initialized = True
    cuda.get_device_properties = lambda ordinal: SimpleNamespace(name="T4")  # type: ignore[method-assign]
    assert cuda_uuids() is None


def test_the_real_torch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert cuda_uuids() is None
    assert not torch.cuda.is_initialized()
