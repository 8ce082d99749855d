"""Providers that are handed in, and switches: what a user is told, and what stays off."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from akka_otel_callbacks.common import guard, switches
from akka_otel_callbacks.common.gpu import nvml
from akka_otel_callbacks.common.gpu.fake import FakeGpu, FakeNvml
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.testing import telemetry_in_memory
from akka_otel_callbacks.trl import AkkaTelemetryCallback, run_resource
from tests.trl.runs import exported_run
from tests.trl.trainings import online, sft

PROJECT, ID = names.ATTR_PROJECT.name, names.ATTR_RUN_ID.name


def provider(resource: Resource | None = None) -> tuple[MeterProvider, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    return MeterProvider([reader], resource=resource, shutdown_on_exit=False), reader


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"project": "p"}, [PROJECT]),
        ({"run_id": "r", "attempt": 3}, [ID, names.ATTR_RUN_ATTEMPT.name]),
        ({"resource": {"team": "blue"}}, ["team"]),
    ],
)
@pytest.mark.parametrize("kind", ["meter_provider", "tracer_provider"])
def test_what_a_provider_does_not_say_is_one_warning(
    kind: str, options: dict[str, Any], named: list[str], tiny_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = provider()[0] if kind == "meter_provider" else TracerProvider(shutdown_on_exit=False)
    callback = AkkaTelemetryCallback(**{kind: given}, **options)
    trainer = sft(tiny_model, [callback], max_steps=1)
    trainer.train()
    trainer.train()
    (warning,) = told(caplog)
    assert all(name in warning for name in named)
    assert "run_resource" in warning


def test_a_provider_with_the_run_s_resource(tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    trainer = online("GRPO", tiny_model, [], max_steps=1)
    resource = run_resource(trainer, project="p", resource={"team": "blue"})
    meters, reader = provider(resource)
    with telemetry_in_memory() as memory:
        callback = AkkaTelemetryCallback(
            meter_provider=meters, tracer_provider=memory.tracer_provider, resource={"team": "blue"}
        )
        memory.tracer_provider._resource = resource
        trainer.add_callback(callback)
        trainer.train()
    (exported,) = reader.get_metrics_data().resource_metrics
    attributes = exported.resource.attributes
    assert (attributes[PROJECT], attributes["team"]) == ("p", "blue")
    assert attributes[names.ATTR_RUN_METHOD.name] == "GRPO"
    assert attributes[names.ATTR_RUN_ENGINE.name] == "trl"
    assert attributes[names.ATTR_RUN_GROUP_SIZE.name] == 4
    assert not told(caplog)
    assert callback._session.attempt().run_id == attributes[ID], "the callback is of that run"


def test_a_resource_without_a_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{ID}=environment,team=red")
    attributes = run_resource(attempt=2).attributes
    assert (attributes[ID], attributes["team"], attributes[names.ATTR_RUN_ATTEMPT.name]) == ("environment", "red", 2)
    assert attributes[names.ATTR_RUN_ENGINE.name] == "trl"


# -- switches


@pytest.mark.parametrize(
    ("value", "off"), [("1", True), ("true", True), (" Yes ", True), ("0", False), ("", False), ("off", False)]
)
def test_a_switch(value: str, off: bool) -> None:
    assert switches.is_off(switches.EVERYTHING, {switches.EVERYTHING: value}) is off
    assert not switches.is_off(switches.EVERYTHING, {})


def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.Nvml, "ask", lambda *args, **kwargs: pytest.fail("NVML was asked"))


@pytest.mark.parametrize("by", ["variable", "argument"])
def test_only_the_gpus_are_off(by: str, tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbidden(monkeypatch)
    guard.failures.clear()
    monkeypatch.setattr("akka_otel_callbacks.trl.session.device_ids", lambda trainer, args: [0, 1])
    variables = {"AKKA_OTEL_GPU_DISABLE": "1"} if by == "variable" else {}
    callback = AkkaTelemetryCallback(gpus=False) if by == "argument" else None
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, max_steps=1), callback=callback, variables=variables
    )
    assert run.shown(names.SFT_STEP_COUNT) == 1
    placed = [point for point in run.points() if point.name == names.JOB_PLACEMENT.name]
    assert [point.attributes[names.ATTR_JOB_RANK.name] for point in placed] == [0, 1], "they are held all the same"
    assert not any(names.ATTR_HW_ID.name in point.attributes for point in placed)
    assert not {metric.name for metric in GpuHealth.metrics} & {point.name for point in run.points()}
    assert not guard.failures


def test_gpus_that_are_given_are_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in verl's workers, which make theirs from the environment."""
    forbidden(monkeypatch)
    fake = FakeNvml(FakeGpu())
    monkeypatch.setenv("AKKA_OTEL_GPU_DISABLE", "1")
    gpus = GpuHealth(fake.device_ids, backend=fake, interval_s=0.01)
    gpus.start()
    assert [gpus.points(metric) for metric in gpus.metrics if gpus.points(metric)] == []
    assert gpus.devices.held() == (None,)
    gpus.stop()


def test_without_telemetry_nothing_is_tapped(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from akka_otel_callbacks.trl import taps

    monkeypatch.setenv("AKKA_OTEL_DISABLE", "1")
    monkeypatch.setattr(taps, "_tap_own", lambda *args: pytest.fail("a class was touched"))
    sft(tiny_model, [AkkaTelemetryCallback()], max_steps=1).train()
