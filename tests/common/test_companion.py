"""A process that publishes only its GPUs, whatever comes first: its identity or its end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from akka_otel_callbacks.common.companion import Companion
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.run.identity import RunIdentity, identify
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until

GPU = FakeGpu(uuid="GPU-11111111-0000-0000-0000-000000000001", power_mw=300_000)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        yield sink


def run() -> RunIdentity:
    return identify({}, engine={}, run_id="run-7", attempt=2, rank=3)


def gpus() -> GpuHealth:
    nvml = FakeNvml(GPU)
    return GpuHealth(nvml.device_ids, backend=nvml, interval_s=0.02)


def test_it_publishes_its_gpus_and_no_span(sink: OtlpSink) -> None:
    companion = Companion(run, gpus, rank=3, writer="rank-3")
    power = wait_until(lambda: sink.series(names.HW_POWER))[-1]
    companion.close()
    placed = sink.series(names.JOB_PLACEMENT)[-1]
    assert (power.value, placed.value) == (300.0, 1)
    assert placed.attributes[names.ATTR_JOB_RANK.name] == 3
    assert placed.attributes[names.ATTR_JOB_ROLE.name] == names.JobRole.TRAINER
    assert placed.resource[names.ATTR_SERVICE_INSTANCE_ID.name] == "run-7.2.3"
    assert sink.spans() == []


def test_a_process_whose_run_nobody_tells_publishes_nothing(sink: OtlpSink) -> None:
    asked = threading.Event()

    def nobody() -> None:
        asked.set()

    companion = Companion(nobody, lambda: pytest.fail("it has no run to publish them for"), rank=1, writer="rank-1")
    assert asked.wait(20)
    assert companion.flush(0.1) is False
    companion.close()
    assert sink.metrics() == []


def test_the_end_of_a_training_that_comes_before_the_identity_leaves_nothing_open(sink: OtlpSink) -> None:
    told, taken = threading.Event(), threading.Event()

    def late() -> RunIdentity:
        told.wait(20)
        return run()

    def last() -> GpuHealth:
        taken.set()
        return gpus()

    companion = Companion(late, last, rank=1, writer="rank-1")
    companion.close()
    told.set()
    assert taken.wait(20)
    wait_until(lambda: not any(thread.name == "akka-otel-companion" for thread in threading.enumerate()))
    assert companion.telemetry is None


def test_what_fails_costs_the_companion_only(sink: OtlpSink) -> None:
    companion = Companion(lambda: 1 / 0, gpus, rank=1, writer="rank-1")  # type: ignore[arg-type, return-value]
    companion.close()
    assert companion.telemetry is None


def test_the_training_thread_asks_nothing(sink: OtlpSink) -> None:
    asked: list[threading.Thread] = []

    def noting(give: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: (asked.append(threading.current_thread()), give())[1]

    companion = Companion(
        noting(run), noting(lambda: GpuHealth([])), rank=0, writer="w", role=noting(lambda: "critic"), without_gpu=True
    )
    wait_until(lambda: companion.telemetry)
    assert len(asked) >= 3, "the role, the identity, the GPUs"
    assert threading.current_thread() not in asked
    companion.close()


def test_a_role_that_is_not_known_yet_keeps_the_place_back(sink: OtlpSink) -> None:
    roles = {"now": None}
    companion = Companion(run, lambda: GpuHealth([]), rank=0, writer="w", role=lambda: roles["now"], without_gpu=True)
    wait_until(lambda: companion.telemetry)
    assert companion.flush(20)
    assert sink.series(names.JOB_PLACEMENT) == []
    roles["now"] = "critic"  # type: ignore[assignment]
    (placed, *_) = wait_until(lambda: sink.series(names.JOB_PLACEMENT))
    assert placed.attributes[names.ATTR_JOB_ROLE.name] == "critic"
    companion.close()
