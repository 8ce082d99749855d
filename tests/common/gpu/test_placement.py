from __future__ import annotations

import pytest

from akka_otel_callbacks.common.gpu.device_ids import torch_device_ids
from akka_otel_callbacks.common.gpu.devices import Devices
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.nvml import Nvml
from akka_otel_callbacks.common.gpu.placement import Placement
from akka_otel_callbacks.common.vocabulary import names

A, B = "GPU-aaaa", "GPU-bbbb"
WHERE = {
    names.ATTR_K8S_POD_NAME.name: "trainer-0",
    names.ATTR_K8S_NODE_NAME.name: "node-7",
    names.ATTR_HOST_NAME.name: "trainer-0.local",
    names.ATTR_RUN_ID.name: "not of the placement",
}
RANK, ROLE = names.ATTR_JOB_RANK.name, names.ATTR_JOB_ROLE.name


class NoDriver:
    def nvmlInit(self) -> None:
        raise OSError("libnvidia-ml.so.1")


def devices(device_ids: list[int | str] | None, backend: object = None) -> Devices:
    found = Devices(Nvml(backend or FakeNvml(FakeGpu(A, "H100"), FakeGpu(B, "A100"))), device_ids, {})
    found.refresh()
    return found


def test_one_series_for_each_device_with_its_position_as_rank() -> None:
    placement = Placement(devices([B, A]), where=WHERE)
    there = {"k8s.pod.name": "trainer-0", "k8s.node.name": "node-7", "host.name": "trainer-0.local"}
    assert placement.points() == [
        (1, {RANK: 0, ROLE: "trainer", "hw.id": B, "hw.name": "A100", **there}),
        (1, {RANK: 1, ROLE: "trainer", "hw.id": A, "hw.name": "H100", **there}),
    ]


def test_a_process_of_a_group_has_its_own_rank_and_role() -> None:
    placement = Placement(devices([A]), role=lambda: names.JobRole.ACTOR_ROLLOUT, rank=3, where={})
    assert placement.points() == [(1, {RANK: 3, ROLE: "actor_rollout", "hw.id": A, "hw.name": "H100"})]


def test_where_no_gpu_can_be_read_the_series_has_no_uuid() -> None:
    placement = Placement(devices([0, 1], NoDriver()), where={})
    assert placement.points() == [(1, {RANK: 0, ROLE: "trainer"}), (1, {RANK: 1, ROLE: "trainer"})]


def test_a_job_without_a_device_has_no_placement() -> None:
    assert Placement(devices([]), where=WHERE).points() == []


def test_a_worker_process_without_a_device_has_one() -> None:
    placement = Placement(devices([]), role=lambda: names.JobRole.ACTOR, rank=0, where={}, without_gpu=True)
    assert placement.points() == [(1, {RANK: 0, ROLE: "actor"})]


@pytest.mark.parametrize("without_gpu", [True, False])
def test_nothing_while_the_devices_are_looked_for(without_gpu: bool) -> None:
    looking = Devices(Nvml(FakeNvml(FakeGpu(A), FakeGpu(B))), [0], {})  # an index, two GPUs, and CUDA not in use
    looking.refresh()
    assert Placement(looking, where={}, without_gpu=without_gpu).points() == []


def test_no_series_before_the_role_is_known() -> None:
    role: list[str | None] = [None, names.JobRole.ACTOR]
    placement = Placement(devices([A]), role=lambda: role.pop(0), where={})
    assert placement.points() == []
    assert [attributes[ROLE] for _, attributes in placement.points()] == ["actor"]


def test_a_worker_with_a_device_has_one_series() -> None:
    assert len(Placement(devices([A]), rank=0, where={}, without_gpu=True).points()) == 1


def test_every_attribute_is_the_registrys() -> None:
    ((_, attributes),) = Placement(devices([A]), where=WHERE).points()
    assert attributes.keys() == {attribute.name for attribute in names.JOB_PLACEMENT.attributes}


@pytest.mark.parametrize(
    ("device", "device_ids"),
    [
        (("cpu", None, 0), []),
        (("mps", 0, 1), []),
        (("cuda", None, 1), [0]),
        (("cuda", 0, 1), [0]),
        (("cuda", 3, 1), [3]),
        (("cuda", 0, 4), [0, 1, 2, 3]),
    ],
)
def test_what_a_trainers_process_holds(device: tuple[str, int | None, int], device_ids: list[int]) -> None:
    assert torch_device_ids(*device) == device_ids
