"""The funnel, through the real nvidia-ml-py and a scripted libnvidia-ml.so.1."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.gpu.nvml import ADVICE, Code, Nvml, Unavailable
from tests.fake_nvml import FakeDriver

CODES = sorted({value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")})


def opened(backend: object = None) -> Nvml:
    nvml = Nvml(backend)
    assert nvml.open() is True
    return nvml


def test_our_codes_are_nvmls() -> None:
    for code in Code:
        if code > 0:
            assert getattr(pynvml, f"NVML_ERROR_{code.name}") == code
        else:
            assert code not in CODES


@pytest.mark.parametrize("code", [*CODES, 77, 1234])
def test_every_return_code_is_a_value(driver: FakeDriver, code: int) -> None:
    driver.gpu("GPU-a")
    nvml = opened()
    handle = nvml.ask("nvmlDeviceGetHandleByUUID", to=("GPU-a",))
    driver.fail("nvmlDeviceGetPowerUsage", code)
    answer = nvml.ask("nvmlDeviceGetPowerUsage", to=(handle,))
    assert isinstance(answer, Unavailable)
    assert answer.code == code
    assert answer.text
    assert not answer
    driver.heal()
    assert nvml.open() is True
    assert nvml.ask("nvmlDeviceGetPowerUsage", to=(handle,)) == 250_000


@pytest.mark.parametrize("code", [Code.DRIVER_NOT_LOADED, Code.NO_PERMISSION, Code.LIBRARY_NOT_FOUND, 18, Code.UNKNOWN])
def test_a_start_that_fails_is_a_value_and_is_tried_again(driver: FakeDriver, code: int) -> None:
    driver.fail("nvmlInitWithFlags", code)
    nvml = Nvml()
    answer = nvml.open()
    assert isinstance(answer, Unavailable)
    assert answer.code == code
    assert nvml.generation == 0
    driver.heal()
    assert nvml.open() is True
    assert nvml.generation == 1


def test_a_function_that_the_driver_does_not_have(driver: FakeDriver) -> None:
    driver.gpu("GPU-a")
    nvml = opened()
    handle = nvml.ask("nvmlDeviceGetHandleByUUID", to=("GPU-a",))
    assert nvml.ask("nvmlDeviceGetFanSpeed", to=(handle,)).code == Code.FUNCTION_NOT_FOUND
    newer_and_older = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert nvml.ask(*newer_and_older, to=(handle,)) == 0
    driver.fail("nvmlDeviceGetCurrentClocksThrottleReasons", Code.NO_PERMISSION)
    assert nvml.ask(*reversed(newer_and_older), to=(handle,)).code == Code.NO_PERMISSION, "a refusal is an answer"


def test_a_function_that_the_package_does_not_have(driver: FakeDriver) -> None:
    assert opened().ask("nvmlDeviceGetFuture", to=(1,)).code == Code.FUNCTION_NOT_FOUND


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml = Nvml()
    for _ in range(3):
        assert nvml.open().code == Code.PACKAGE_MISSING
    assert [record.message for record in caplog.records if "nvidia-ml-py" in record.message] == [
        record.message for record in caplog.records
    ]
    assert len(caplog.records) == 1


def test_an_answer_that_no_driver_should_give() -> None:
    def broken(*_: object) -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "not text")

    answer = opened(SimpleNamespace(nvmlInit=lambda: None, broken=broken)).ask("broken")
    assert answer.code == Code.UNKNOWN
    assert "not text" in answer.text


def test_one_log_line_a_cause_for_the_life_of_the_process(driver: FakeDriver, caplog: pytest.LogCaptureFixture) -> None:
    gpu = driver.gpu("GPU-a")
    for _ in range(3):
        nvml = opened()
        handle = nvml.ask("nvmlDeviceGetHandleByUUID", to=("GPU-a",))
        for function in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo"):
            driver.fail(function, Code.GPU_IS_LOST, gpu)
            nvml.ask(function, to=(handle,))
            driver.heal()
            driver.fail(function, Code.NOT_SUPPORTED, gpu)
            nvml.ask(function, to=(handle,))
            driver.heal()
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, f"{ADVICE[Code.GPU_IS_LOST][1]} (nvmlDeviceGetPowerUsage: GPU is lost)"),
        (logging.INFO, f"{ADVICE[Code.NOT_SUPPORTED][1]} (nvmlDeviceGetPowerUsage: Not Supported)"),
    ]


@pytest.mark.parametrize("code", [Code.NO_PERMISSION, Code.GPU_IS_LOST, 18, Code.UNKNOWN])
def test_a_start_that_fails_takes_all_figures(driver: FakeDriver, caplog: pytest.LogCaptureFixture, code: int) -> None:
    driver.gpu("GPU-a")
    driver.fail("nvmlInitWithFlags", code)
    for _ in range(2):
        Nvml().open()
    (record,) = caplog.records
    assert record.message.startswith("all GPU figures are absent: NVML does not start (nvmlInit: ")
    driver.heal()
    nvml = opened()
    handle = nvml.ask("nvmlDeviceGetHandleByUUID", to=("GPU-a",))
    driver.fail("nvmlDeviceGetPowerUsage", code)
    nvml.ask("nvmlDeviceGetPowerUsage", to=(handle,))
    assert len(caplog.records) == 2, "of one figure the same code says something else"


def test_what_is_part_of_asking_is_not_logged(driver: FakeDriver, caplog: pytest.LogCaptureFixture) -> None:
    nvml = opened()
    assert nvml.ask("nvmlDeviceGetHandleByUUID", to=("GPU-nowhere",)).code == Code.NOT_FOUND
    assert nvml.ask("nvmlDeviceGetHandleByIndex", to=(9,)).code == Code.INVALID_ARGUMENT
    assert caplog.records == []


def test_a_shutdown_by_another_part_of_the_program_is_healed(driver: FakeDriver) -> None:
    nvml = opened()
    pynvml.nvmlShutdown()
    assert nvml.ask("nvmlDeviceGetCount").code == Code.UNINITIALIZED
    assert nvml.open() is True
    assert nvml.ask("nvmlDeviceGetCount") == 0
    assert nvml.generation == 2


@given(st.text() | st.integers() | st.none(), st.lists(st.integers() | st.text(), max_size=3))
def test_whatever_an_error_carries_it_is_a_value(value: object, arguments: list[object]) -> None:
    error = RuntimeError("x")
    error.value = value  # type: ignore[attr-defined]

    def broken(*_: object) -> None:
        raise error

    answer = opened(SimpleNamespace(nvmlInit=lambda: None, broken=broken)).ask("broken", to=tuple(arguments))
    assert isinstance(answer, Unavailable)
    assert isinstance(answer.code, int)
