"""Prometheus names against the real Python exporter, and against the rules that collectors and Prometheus share."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from tools.prometheus import prometheus_label, prometheus_name


def record(meter: Meter, metric: Metric) -> None:
    """One point on the metric's instrument, with a value for each of its attributes."""
    attributes = {attribute.name: attribute.type(1) for attribute in metric.attributes}
    about = {"unit": metric.unit, "description": metric.description}
    if metric.kind is Kind.GAUGE:
        meter.create_observable_gauge(metric.name, [lambda _: [Observation(0.5, attributes)]], **about)
    elif metric.kind is Kind.COUNTER:
        meter.create_counter(metric.name, **about).add(1, attributes)
    elif metric.kind is Kind.UPDOWNCOUNTER:
        meter.create_up_down_counter(metric.name, **about).add(1, attributes)
    else:
        meter.create_histogram(metric.name, **about).record(1, attributes)


@pytest.fixture(scope="module")
def scraped() -> dict[str, set[str]]:
    """What a scrape of the Python endpoint has, after a point on every metric: the labels by the name of the series."""
    before = _series()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False)
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    for metric in names.METRICS:
        record(provider.get_meter("test"), metric)
    after = _series()
    provider.shutdown()
    return {name: labels for name, labels in after.items() if name not in before}


def _series() -> dict[str, set[str]]:
    families = text_string_to_metric_families(generate_latest(REGISTRY).decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_the_python_endpoint_gives_the_name_and_the_labels(scraped: dict[str, set[str]], metric: Metric) -> None:
    name = prometheus_name(metric, "python")
    series = [f"{name}{suffix}" for suffix in ("_sum", "_count")] if metric.kind is Kind.HISTOGRAM else [name]
    labels = {prometheus_label(attribute.name) for attribute in metric.attributes}
    assert {each: scraped.get(each) for each in series} == dict.fromkeys(series, labels)


def test_the_python_endpoint_has_no_other_series(scraped: dict[str, set[str]]) -> None:
    known = {prometheus_name(metric, "python") for metric in names.METRICS}
    endings = ("", "_sum", "_count", "_bucket")
    assert {name for name in scraped if not any(name.removesuffix(end) in known for end in endings)} == set()


def named(name: str, kind: str, unit: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, kind=kind, unit=unit)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (named("rl.step.count", "counter", "{step}"), "rl_step_count_total"),
        (named("rl.step1.count", "counter", "1"), "rl_step1_count_total"),
        (named("phase.time", "counter", "s"), "phase_time_seconds_total"),
        (named("hw.energy", "counter", "J"), "hw_energy_joules_total"),
        (named("requests.total", "counter", "{request}"), "requests_total"),
        (named("total.requests", "counter", "{request}"), "requests_total"),
        (named("job.placement", "gauge", "1"), "job_placement_ratio"),
        (named("job.placement", "gauge", "{process}"), "job_placement"),
        (named("hw.gpu.utilization", "gauge", "1"), "hw_gpu_utilization_ratio"),
        (named("cpu_usage_ratio", "gauge", "1"), "cpu_usage_ratio"),
        (named("rl.step.clip_ratio.high", "gauge", "1"), "rl_step_clip_high_ratio"),
        (named("rl.step.timing", "gauge", "s"), "rl_step_timing_seconds"),
        (named("wait.seconds.max", "gauge", "s"), "wait_seconds_max"),
        (named("step.memory", "gauge", "By"), "step_memory_bytes"),
        (named("hw.temperature", "gauge", "Cel"), "hw_temperature_celsius"),
        (named("hw.power", "gauge", "W"), "hw_power_watts"),
        (named("clock.frequency", "gauge", "Hz"), "clock_frequency_hertz"),
        (named("io", "gauge", "By/s"), "io_bytes_per_second"),
        (named("rl.step.throughput", "gauge", "{token}/s"), "rl_step_throughput_per_second"),
        (named("hw.status", "updowncounter", "1"), "hw_status"),
        (named("hw.gpu.memory.usage", "updowncounter", "By"), "hw_gpu_memory_usage_bytes"),
        (named("rl.step.duration", "histogram", "s"), "rl_step_duration_seconds"),
        (named("rl.rollout.reward", "histogram", "{reward}"), "rl_rollout_reward"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_collector_gives_the_name(metric: SimpleNamespace, expected: str) -> None:
    """The rows of prometheus/otlptranslator and of receivers that were measured."""
    assert prometheus_name(metric, "collector") == expected


def test_the_names_that_dashboards_and_alerts_are_documented_with() -> None:
    assert prometheus_name(names.RL_STEP_COUNT, "collector") == "akka_optimize_training_rl_step_count_total"
    assert prometheus_name(names.SFT_STEP_COUNT, "python") == "akka_optimize_training_sft_step_count_total"
    assert prometheus_name(names.JOB_PLACEMENT, "collector") == "akka_optimize_training_job_placement"
    assert prometheus_name(names.POOL_DEVICES_CLAIMED, "collector") == "akka_optimize_training_pool_devices_claimed"


@pytest.mark.parametrize("dialect", ["collector", "python"])
def test_no_two_metrics_share_a_name(dialect: str) -> None:
    found = [prometheus_name(metric, dialect) for metric in names.METRICS]
    assert len(set(found)) == len(found)


def test_the_dialects_differ_for_fractions_only() -> None:
    differing = {
        metric for metric in names.METRICS if prometheus_name(metric, "collector") != prometheus_name(metric, "python")
    }
    fractions = {metric for metric in names.METRICS if metric.unit == "1"}
    alike = {metric for metric in fractions if metric.name.endswith("_ratio")}
    assert differing == fractions - alike


@pytest.mark.parametrize("unit", ["parsec", "1/s/s", "KiBy", "s/min"])
def test_an_unknown_unit_is_an_error_that_names_it(unit: str) -> None:
    with pytest.raises(ValueError, match="x: no Prometheus word is known for the unit"):
        prometheus_name(named("x", "gauge", unit), "collector")
