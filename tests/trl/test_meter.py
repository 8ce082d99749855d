"""Metrics of a user's own on `callback.meter`: in real trainings, at a real receiver, in the files, on a scrape."""

from __future__ import annotations

import copy
import json
import pickle
import urllib.request
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.common.export.test_prometheus_address import free_port
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.trl.trainings import online, sft


class Solved:
    """A reward function that counts with instruments of the user's own."""

    def __init__(self, callback: AkkaTelemetryCallback) -> None:
        self.calls = 0
        self.__name__ = "solved"
        self._rows = callback.meter.create_counter("my.rows", unit="{row}", description="Rows that were scored.")
        self._sizes = callback.meter.create_histogram("my.sizes", explicit_bucket_boundaries_advisory=[4, 8])

    def __call__(self, completions: Sequence[str], **_: Any) -> list[float]:
        self.calls += 1
        self._rows.add(len(completions), {"kind": "even" if self.calls % 2 == 0 else "odd"})
        self._sizes.record(len(completions))
        return [float(index) for index, _ in enumerate(completions)]


def latest(sink: OtlpSink, name: str) -> dict[Any, float]:
    """By attributes, the newest value of each series."""
    return {tuple(p.attributes.values()): p.value for p in sink.metrics() if p.name == name}


def train(tiny_model: str, callback: AkkaTelemetryCallback, rewards: Solved) -> None:
    given = {"reward_funcs": [rewards]}
    online("GRPO", tiny_model, [callback], trainer=given, reward_weights=None, max_steps=2).train()


@pytest.mark.parametrize("preference", ["cumulative", "delta"])
def test_they_arrive_with_the_runs_figures_and_under_its_resource(
    preference: str, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = AkkaTelemetryCallback(run_id="mine", attempt=1)
    rewards = Solved(callback)
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
        train(tiny_model, callback, rewards)
        assert sum(latest(sink, "my.rows").values()) == 8 * 2
        train(tiny_model, callback, rewards)
        rows = [point for point in sink.metrics() if point.name == "my.rows"]
        assert sum(latest(sink, "my.rows").values()) == 8 * 4, "totals go on"
        assert all(point.cumulative and point.monotonic and point.unit == "{row}" for point in rows)
        assert {point.resource[names.ATTR_RUN_ID.name] for point in rows} == {"mine"}
        assert {point.resource[names.ATTR_RUN_ATTEMPT.name] for point in rows} == {1, 2}
        sizes = [point.histogram for point in sink.metrics() if point.name == "my.sizes"][-1]
        assert sizes is not None
        assert (sizes.bounds, sizes.count) == ((4, 8), rewards.calls)
        assert sink.latest(names.RL_STEP_REWARD).value == 3.5


def test_they_are_in_the_files_and_on_a_scrape(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "file,prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    callback, scraped = AkkaTelemetryCallback(), []

    class Scraping(Solved):
        def __call__(self, completions: Sequence[str], **columns: Any) -> list[float]:
            scores = super().__call__(completions, **columns)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                scraped.append(response.read().decode())
            return scores

    train(tiny_model, callback, Scraping(callback))
    families = {family.name: family for family in text_string_to_metric_families(scraped[-1])}
    assert sum(sample.value for sample in families["my_rows"].samples) == 8 * len(scraped)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    found = {
        metric["name"]: metric
        for resource in line["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    }
    assert sum(int(point["asInt"]) for point in found["my.rows"]["sum"]["dataPoints"]) == 8 * 2


def test_whatever_they_hold_the_runs_own_figures_arrive(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = AkkaTelemetryCallback()

    def broken(options: CallbackOptions) -> list[Observation]:
        raise ValueError("of the user's")

    callback.meter.create_observable_gauge("my.broken", callbacks=[broken])
    gauge = callback.meter.create_gauge("my.gauge")
    values: dict[str, Any] = {"none": None, "list": [1, "a"], "object": object(), "huge": 2**70, "lone": "\ud800"}
    for name, value in values.items():
        gauge.set(1.0, {name: value})
    gauge.set(float("nan"), {"is": "nan"})  # the SDK takes none
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        sft(tiny_model, [callback], max_steps=2).train()
        assert sink.latest(names.SFT_STEP_COUNT).value == 2
        series = {tuple(point.attributes) for point in sink.metrics() if point.name == "my.gauge"}
        assert series == {(name,) for name in values}


NUMBERS: dict[str, Any] = {
    "tensor": torch.tensor(2.5),
    "numpy": numpy.int64(3),
    "single": numpy.float32(0.5),
    "decimal": Decimal("1.5"),
    "truth": True,
    "huge": 2**70,
    "negative": -(2**70),
}


@pytest.mark.parametrize("exporter", ["otlp", "file", "console"])
def test_what_merely_counts_as_a_number_arrives_as_one(
    exporter: str, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = AkkaTelemetryCallback()
    gauge, histogram = callback.meter.create_gauge("my.gauge"), callback.meter.create_histogram("my.sizes")
    for name, value in NUMBERS.items():
        gauge.set(value, {"kind": name})
        histogram.record(abs(value), {"kind": name})
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", exporter)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
        sft(tiny_model, [callback], max_steps=2).train()
        if exporter == "otlp":
            assert sink.latest(names.SFT_STEP_COUNT).value == 2
            assert latest(sink, "my.gauge") == {(name,): float(value) for name, value in NUMBERS.items()}
            sums = {tuple(p.attributes.values()): p.histogram.sum for p in sink.metrics() if p.name == "my.sizes"}  # type: ignore[union-attr]
            assert sums == {(name,): float(abs(value)) for name, value in NUMBERS.items()}
            return
    written = (tmp_path / "metrics.jsonl").read_text() if exporter == "file" else capsys.readouterr().out
    assert names.SFT_STEP_COUNT.name in written
    assert "my.gauge" in written


def test_a_given_provider_has_them_itself(tiny_model: str) -> None:
    reader = InMemoryMetricReader()
    callback = AkkaTelemetryCallback(meter_provider=MeterProvider([reader]), gpus=False)
    callback.meter.create_counter("my.rows").add(3)
    data = reader.get_metrics_data()
    assert data is not None
    (scope,) = data.resource_metrics[0].scope_metrics
    assert [metric.name for metric in scope.metrics] == ["my.rows"]


def test_a_copy_is_another_run_and_has_its_own(tiny_model: str) -> None:
    callback = AkkaTelemetryCallback()
    assert callback.meter is callback.meter
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert copied.meter is not callback.meter
