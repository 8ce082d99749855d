"""Prometheus names against the real Python exporter, and against the rules that collectors and Prometheus share."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind, Metric
from tools.prometheus import DIALECTS, Dialect, all_series, label_name, quoted, selector, series_name


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
    labels = {label_name(attribute.name, "scrape") for attribute in metric.attributes}
    expected = {name: labels | ({"le"} if name.endswith("_bucket") else set()) for name in all_series(metric, "scrape")}
    assert {name: scraped.get(name) for name in expected} == expected


def test_the_python_endpoint_has_no_other_series(scraped: dict[str, set[str]]) -> None:
    assert scraped.keys() == {name for metric in names.METRICS for name in all_series(metric, "scrape")}


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
    assert series_name(metric, "collector") == expected


def test_the_names_that_dashboards_and_alerts_are_documented_with() -> None:
    assert series_name(names.RL_STEP_COUNT, "collector") == "akka_optimize_training_rl_step_count_total"
    assert series_name(names.SFT_STEP_COUNT, "scrape") == "akka_optimize_training_sft_step_count_total"
    assert series_name(names.JOB_PLACEMENT, "collector") == "akka_optimize_training_job_placement"
    assert series_name(names.POOL_DEVICES_CLAIMED, "collector") == "akka_optimize_training_pool_devices_claimed"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (named("rl.step.count", "counter", "{step}"), "rl.step.count_total"),
        (named("phase.time", "counter", "s"), "phase.time_seconds_total"),
        (named("requests.total", "counter", "{request}"), "requests_total"),
        (named("total.requests", "counter", "{request}"), "total.requests_total"),
        (named("total", "counter", "{request}"), "total_total"),
        (named("job.placement", "gauge", "{process}"), "job.placement"),
        (named("rl.step.clip_ratio.high", "gauge", "1"), "rl.step.clip_ratio.high_ratio"),
        (named("rl.step.clip_ratio", "gauge", "1"), "rl.step.clip_ratio"),
        (named("wait.seconds", "gauge", "s"), "wait.seconds"),
        (named("wait.seconds.max", "gauge", "s"), "wait.seconds.max_seconds"),
        (named("io", "gauge", "By/s"), "io_bytes_per_second"),
        (named("rl.step.throughput", "gauge", "{token}/s"), "rl.step.throughput_per_second"),
        (named("hw.status", "updowncounter", "1"), "hw.status"),
        (named("rl.step.duration", "histogram", "s"), "rl.step.duration_seconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_where_dots_stay_the_suffixes_are_added_all_the_same(metric: SimpleNamespace, expected: str) -> None:
    assert series_name(metric, "utf8") == expected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_two_metrics_share_a_name(dialect: Dialect) -> None:
    found = [name for metric in names.METRICS for name in all_series(metric, dialect)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("metric", names.METRICS, ids=lambda metric: metric.name)
def test_the_name_with_dots_begins_as_the_metric_and_has_the_words_of_the_other(metric: Metric) -> None:
    name = series_name(metric, "utf8")
    assert name.startswith(metric.name.removesuffix("_ratio"))
    assert {*re.split(r"[._]", name)} == {*series_name(metric, "collector").split("_")}


def test_labels_keep_their_dots_where_names_do() -> None:
    attribute = names.ATTR_RL_TERM.name
    assert [label_name(attribute, dialect) for dialect in DIALECTS] == [
        "akka_optimize_training_rl_term",
        "akka_optimize_training_rl_term",
        "akka.optimize.training.rl.term",
    ]


def test_promql_has_names_with_dots_in_quotes() -> None:
    assert selector("up") == "up"
    assert selector("up", 'job="a"', 'run!=""') == 'up{job="a",run!=""}'
    assert selector("rl.step.count_total") == '{"rl.step.count_total"}'
    assert selector("rl.step.count_total", f'{quoted("run.id")}="7"') == '{"rl.step.count_total","run.id"="7"}'
    assert quoted("hw_id") == "hw_id"


@pytest.mark.parametrize("dialect", ["python", "UTF8", ""])
def test_an_unknown_dialect_is_an_error_of_one_line_that_names_the_known_ones(dialect: str) -> None:
    expected = f"the dialect {dialect!r} is unknown; it is one of scrape, collector, utf8"
    for call in (lambda: series_name(names.HW_POWER, dialect), lambda: label_name("hw.id", dialect)):
        with pytest.raises(ValueError, match="unknown") as raised:
            call()
        assert str(raised.value) == expected


def test_a_scrape_and_a_collector_differ_for_fractions_only() -> None:
    differing = {
        metric for metric in names.METRICS if series_name(metric, "collector") != series_name(metric, "scrape")
    }
    fractions = {metric for metric in names.METRICS if metric.unit == "1" and metric.kind is Kind.GAUGE}
    alike = {metric for metric in fractions if metric.name.endswith("_ratio")}
    assert differing == fractions - alike


@pytest.mark.parametrize("unit", ["parsec", "1/s/s", "KiBy", "s/min"])
def test_an_unknown_unit_is_an_error_that_names_it(unit: str) -> None:
    with pytest.raises(ValueError, match="x: no Prometheus word is known for the unit"):
        series_name(named("x", "gauge", unit), "collector")
