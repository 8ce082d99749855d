"""The Prometheus endpoint, scraped for real and read with Prometheus's own parser."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from akka_otel_callbacks.common.export.producer import POWERS_OF_TWO
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.recording.translator import MOST_CAPTURES
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from akka_otel_callbacks.common.vocabulary.step import GAUGES, RLStep, SFTStep
from tests.common.reports import Report, grpo_step
from tests.support.otlp_sink import wait_until
from tools.prometheus import label_name, series_name

Start = Callable[..., Telemetry]


class Endpoint:
    """Where the environment has the figures scraped."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/metrics"

    def text(self) -> str:
        with urllib.request.urlopen(self.url, timeout=10) as response:
            return response.read().decode()

    def samples(self) -> list[Sample]:
        return [sample for family in text_string_to_metric_families(self.text()) for sample in family.samples]

    def value(self, metric: Metric, labels: dict[Attribute, str] | None = None, suffix: str = "") -> float | None:
        wanted = {label_name(attribute.name, "scrape"): value for attribute, value in (labels or {}).items()}
        name = series_name(metric, "scrape") + suffix
        found = [s.value for s in self.samples() if s.name == name and wanted.items() <= s.labels.items()]
        assert len(found) <= 1, f"{name} is ambiguous"
        return found[0] if found else None


@pytest.fixture
def endpoint(environment: pytest.MonkeyPatch) -> Endpoint:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    return Endpoint(port)


def report(telemetry: Telemetry, *steps: RLStep | SFTStep) -> None:
    for step in steps:
        telemetry.capture(Report(step), step=True)


def test_a_scrape_has_every_figure_of_the_latest_step_under_its_name(endpoint: Endpoint, start: Start) -> None:
    telemetry, step = start(run_id="run-7"), grpo_step(1)
    report(telemetry, step)
    samples = endpoint.samples()
    for source in GAUGES[RLStep]:
        reported = getattr(step, source.attribute)
        shown = [s for s in samples if s.name == series_name(source.metric, "scrape")]
        if source.by is None:
            assert [s.value for s in shown] == [reported], source.attribute
        else:
            assert {s.labels[label_name(source.by.name, "scrape")]: s.value for s in shown} == reported, (
                source.attribute
            )
    (target,) = (sample for sample in samples if sample.name == "target_info")
    assert target.labels[label_name(names.ATTR_RUN_ID.name, "scrape")] == "run-7"
    assert endpoint.value(names.RL_STEP_COUNT) == 1


def test_every_series_says_of_which_run_it_is(
    endpoint: Endpoint, start: Start, environment: pytest.MonkeyPatch
) -> None:
    said = {
        names.ATTR_PROJECT: "support triage",
        names.ATTR_RUN_ATTEMPT: "3",
        names.ATTR_RUN_METHOD: "GRPO",
        names.ATTR_PIPELINE_ID: "pipe-1",
        names.ATTR_RUN_BASE_MODEL: "org/model",
    }
    pairs = ",".join(f"{attribute.name}={value}" for attribute, value in said.items())
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", pairs)
    report(start(run_id="run-7"), dataclasses.replace(grpo_step(1), rollout_completion_length=[1, 2]))
    samples = [sample for sample in endpoint.samples() if sample.name != "target_info"]
    assert len(samples) > 50
    expected = {
        names.ATTR_RUN_ID: "run-7",
        names.ATTR_RUN_ATTEMPT: "3",
        names.ATTR_RUN_METHOD: "GRPO",
        names.ATTR_PROJECT: "support triage",
        names.ATTR_PIPELINE_ID: "pipe-1",
        names.ATTR_PIPELINE_STAGE_NAME: None,
        names.ATTR_RUN_BASE_MODEL: None,
        names.ATTR_RUN_NAME: None,
    }
    for attribute, value in expected.items():
        label = label_name(attribute.name, "scrape")
        assert {sample.labels.get(label) for sample in samples} == {value}, label


def test_the_exponential_histogram_is_one_of_powers_of_two_here(endpoint: Endpoint, start: Start) -> None:
    """The Python exporter answers 500 for the whole scrape where there is an exponential one."""
    telemetry = start()
    report(telemetry, RLStep(number=1, rollout_completion_length=[1, 3, 100]))
    name = series_name(names.RL_ROLLOUT_COMPLETION_LENGTH, "scrape")
    buckets = {s.labels["le"]: s.value for s in endpoint.samples() if s.name == f"{name}_bucket"}
    assert [float(bound) for bound in buckets] == [*POWERS_OF_TWO, float("inf")]
    assert (buckets["1.0"], buckets["2.0"], buckets["4.0"], buckets["64.0"], buckets["128.0"]) == (1, 1, 2, 2, 3)
    assert endpoint.value(names.RL_ROLLOUT_COMPLETION_LENGTH, suffix="_sum") == 104


def test_bounds_are_written_as_prometheus_writes_them(endpoint: Endpoint, start: Start) -> None:
    """Prometheus 3 makes 1.0 of 1 where it reads it, and Prometheus 2 does not: one query holds in both."""
    report(start(), grpo_step(1))
    bounds = {sample.labels["le"] for sample in endpoint.samples() if "le" in sample.labels}
    assert {"+Inf", "0.0", "0.1", "1.0", "300.0", "4096.0"} <= bounds
    assert bounds - {"+Inf"} == {str(float(bound)) for bound in bounds - {"+Inf"}}


def test_every_scrape_is_of_the_latest_step_without_any_interval(endpoint: Endpoint, start: Start) -> None:
    telemetry = start(SFTStep)
    for number in range(1, 4):
        report(telemetry, SFTStep(number=number, loss=float(number) if number < 3 else None))
        assert endpoint.value(names.SFT_STEP_LOSS) == (float(number) if number < 3 else None)


def test_what_nobody_scrapes_is_bounded_and_not_lost(endpoint: Endpoint, start: Start) -> None:
    telemetry = start()
    report(telemetry, *(RLStep(number=number, duration_s=1.0) for number in range(1, 1001)))
    assert telemetry._steps.waiting() <= MOST_CAPTURES
    wait_until(lambda: endpoint.value(names.RL_STEP_DURATION, suffix="_count") == 1000)


def test_an_endpoint_that_nobody_reads_costs_the_training_no_translation_and_no_memory(
    endpoint: Endpoint, start: Start
) -> None:
    translators: set[int] = set()

    class Watched(Report):
        def deliver(self, recorder: Recorder) -> None:
            translators.add(threading.get_ident())
            super().deliver(recorder)

    telemetry = start()
    for number in range(1, 10_001):
        step = RLStep(number=number, duration_s=1.0, reward=float(number), rollout_completion_length=[number, 7])
        telemetry.capture(Watched(step), step=True)
        if number % 50 == 0:  # steps come quickly, but not faster than they can be translated
            assert telemetry._steps.catch_up(10)
        if number == 2000:
            blocks = sys.getallocatedblocks()
    assert sys.getallocatedblocks() - blocks < 4000, "8000 steps leave something behind, half an object each"
    assert threading.get_ident() not in translators
    assert endpoint.value(names.RL_STEP_REWARD) == 10_000
    assert endpoint.value(names.RL_ROLLOUT_COMPLETION_LENGTH, suffix="_count") == 20_000


def test_a_scrape_under_load_answers_with_a_recent_step(endpoint: Endpoint, start: Start) -> None:
    """Steps come without a pause, faster than anybody can translate them."""
    telemetry = start()
    step, done = grpo_step(1), threading.Event()

    def train() -> None:
        for number in itertools.count(1):
            if done.is_set():
                return
            report(telemetry, dataclasses.replace(step, number=number))

    training = threading.Thread(target=train)
    training.start()
    try:
        counts = [endpoint.value(names.RL_STEP_COUNT) or 0.0 for _ in range(5)]
    finally:
        done.set()
        training.join()
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_scrapes_at_once_do_not_disturb_each_other(endpoint: Endpoint, start: Start) -> None:
    telemetry = start()
    report(telemetry, grpo_step(1))
    texts: list[str] = []
    scrapes = [threading.Thread(target=lambda: texts.append(endpoint.text())) for _ in range(8)]
    for scrape in scrapes:
        scrape.start()
    for number in range(2, 50):
        report(telemetry, grpo_step(number))
    for scrape in scrapes:
        scrape.join(10)
    assert len(texts) == 8
    assert all(len(list(text_string_to_metric_families(text))) > 30 for text in texts)


def test_the_endpoint_ends_with_the_training_and_the_next_one_gets_the_port(
    endpoint: Endpoint, start: Start, log: pytest.LogCaptureFixture
) -> None:
    for training in (1.0, 2.0):
        telemetry = start()
        report(telemetry, RLStep(number=1, reward=training))
        assert endpoint.value(names.RL_STEP_REWARD) == training
        telemetry.close()
        with pytest.raises(urllib.error.URLError, match="refused"):
            endpoint.text()
    assert [record.levelname for record in log.records] == ["INFO"] * 2


def test_the_program_s_own_registry_is_left_alone(endpoint: Endpoint, start: Start) -> None:
    from prometheus_client import REGISTRY, generate_latest

    before = generate_latest(REGISTRY).count(b"# TYPE")
    report(start(), grpo_step(1))
    assert "python_gc_objects_collected" not in endpoint.text()
    assert generate_latest(REGISTRY).count(b"# TYPE") == before
