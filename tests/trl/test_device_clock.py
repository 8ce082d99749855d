"""The clock of a reward model on a GPU, with a device that is not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.trl.device_clock import device_clock
from akka_otel_callbacks.trl.scoring import Rewarder, Scorings, _Timed, calls_of


class Device:
    """A stream that passes by two events 250 ms apart, whenever Python does, and notes who waits for it."""

    def __init__(self) -> None:
        self.waited = False

    def current_stream(self, device: Any) -> str:
        assert device.index == 3, "of the model's device, which need not be the current one"
        return "stream of 3"

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.recorded = device, ""

    def record(self, stream: str) -> None:
        self.recorded = stream

    def synchronize(self) -> None:
        self.device.waited = True

    def elapsed_time(self, end: Event) -> float:
        assert self.recorded == end.recorded == "stream of 3"
        assert self.device.waited, "the time of an event that has not passed is an error"
        return 250.0


def model(kind: str) -> Any:
    return SimpleNamespace(parameters=lambda: iter([SimpleNamespace(device=SimpleNamespace(type=kind, index=3))]))


def timed(kind: str) -> list[Any]:
    scorings = Scorings(None, [])

    class Inner:
        def __enter__(self) -> str:
            return "entered"

        def __exit__(self, *raised: Any) -> None: ...

    with _Timed(Inner(), scorings, Rewarder("judge", None, model(kind))) as entered:
        assert entered == "entered"
    return [*calls_of((5, scorings.entries, []))]


def test_a_model_on_a_gpu_has_the_devices_time_and_nothing_waits_before(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(torch, "cuda", device)
    clock = device_clock(model("cuda"))
    assert clock is not None
    clock.stop()
    assert not device.waited
    (call,) = timed("cuda")
    assert (call.term, call.seconds, call.rows) == ("judge", 0.05, 5)


def test_a_model_on_the_cpu_has_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", None)
    assert device_clock(model("cpu")) is None
    (call,) = timed("cpu")
    assert call.seconds > 0


def test_a_model_without_parameters_has_pythons() -> None:
    assert device_clock(SimpleNamespace(parameters=lambda: iter(()))) is None


def test_a_device_that_fails_costs_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", SimpleNamespace())
    guard.failures.clear()
    assert device_clock(model("cuda")) is None
    assert guard.failures.total() == 1
    guard.failures.clear()
