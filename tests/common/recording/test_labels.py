"""Names that come from a user's data: whatever they are, every exporter takes the export they are in."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recording.labels import MOST_LABELS, Labels, clean
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.text import LONGEST_LABEL, label, one_line
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.reports import Report
from tests.support.otlp_sink import otlp_sink

Start = Callable[..., Telemetry]
HOSTILE = [
    "half \ud83d",
    "\udcff",
    "zero\x00",
    "new\nline",
    "\x1b[31mred",
    "x" * 100_000,
    "x" * 99_999 + "y",
    "\u202eabc",
    "",
]
FINE = ["total", "数学", "naïve reward", "a.b/c-d:e", "🙂", 'quo"te\\', "x" * LONGEST_LABEL]
ANY = st.text(st.characters(exclude_categories=()), max_size=300)  # lone surrogates, too


@given(ANY)
def test_a_label_is_text_and_short(value: str) -> None:
    found = label(value)
    found.encode()
    assert found.isprintable()
    assert len(found) <= LONGEST_LABEL
    assert (found == value) == (value.isprintable() and len(value) <= LONGEST_LABEL)


@given(st.lists(ANY, unique=True, max_size=20))
def test_two_names_stay_two(values: list[str]) -> None:
    assert len({label(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", [None, ("a", 1), b"\xff", 2**70, frozenset([1])])
def test_what_is_no_text_becomes_text(value: Any) -> None:
    assert clean({"term": value}) == {"term": str(value)}
    assert Labels().of(names.RL_STEP_REWARD_TERM, names.ATTR_RL_TERM, value) == {names.ATTR_RL_TERM.name: str(value)}


@given(ANY)
def test_a_message_is_one_short_line(text: str) -> None:
    assert one_line(text * 10).isprintable()
    assert len(one_line(text * 10)) <= 300


@pytest.mark.parametrize("value", FINE)
def test_a_name_that_is_fine_is_left_alone(value: str) -> None:
    assert label(value) is value
    attributes = {"term": value, "count": 1}
    assert clean(attributes) is attributes


def terms(values: list[str]) -> dict[str, Any]:
    return {value: float(index) for index, value in enumerate(values)}


def step(number: int, values: list[str]) -> RLStep:
    return RLStep(
        number=number,
        reward=1.0,
        reward_term=terms(values),
        rollout_reward={value: [float(index)] * 2 for index, value in enumerate(values)},
    )


def train(telemetry: Telemetry, values: list[str]) -> None:
    telemetry.observe(names.JOB_PLACEMENT, lambda: [(2.0, {names.ATTR_RL_TERM.name: values[0]})])
    for number in (1, 2):
        telemetry.capture(Report(step(number, values)), step=True)
    telemetry.span(names.SPAN_JOB, 1, 2, {"name": values[0]})


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_gets_them(
    protocol: str, start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    with otlp_sink() as sink:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.grpc if protocol == "grpc" else sink.http)
        environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        telemetry = start()
        train(telemetry, HOSTILE)
        telemetry.close()
        found = {point.attributes[names.ATTR_RL_TERM.name] for point in sink.series(names.RL_ROLLOUT_REWARD)}
        assert found == {label(value) for value in HOSTILE}
        assert len(sink.spans()) == 2
    assert {record.levelname for record in log.records} == {"INFO"}


def test_the_file_has_them(start: Start, log: pytest.LogCaptureFixture) -> None:
    telemetry = start()
    train(telemetry, HOSTILE)
    telemetry.close()
    for line in Path("akka-otel/run/metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line)
        assert len(line) < 100_000
    assert {record.levelname for record in log.records} == {"INFO"}


def test_a_scrape_shows_them(start: Start, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="the prometheus extra is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    telemetry = start()
    train(telemetry, HOSTILE)
    for _ in range(2):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            assert response.status == 200
            families = list(parser.text_string_to_metric_families(response.read().decode()))
    labels = {value for family in families for sample in family.samples for value in sample.labels.values()}
    assert {label(value) for value in HOSTILE} <= labels
    telemetry.close()


def test_a_given_provider_gets_them(start: Start, log: pytest.LogCaptureFixture) -> None:
    from akka_otel_callbacks.testing import telemetry_in_memory

    with telemetry_in_memory() as memory:
        telemetry = start(meter_provider=memory.meter_provider, tracer_provider=memory.tracer_provider)
        train(telemetry, HOSTILE)
        telemetry.close()
    for value in HOSTILE:
        assert memory.histogram(names.RL_ROLLOUT_REWARD.name, {names.ATTR_RL_TERM.name: label(value)}).count == 4
    assert "Traceback" not in log.text


def test_there_are_so_many_and_the_others_are_counted(start: Start, log: pytest.LogCaptureFixture) -> None:
    with otlp_sink() as sink:
        telemetry = start(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http})
        many = [f"term {index}" for index in range(MOST_LABELS + 50)]
        telemetry.capture(Report(step(1, many)), step=True)
        assert telemetry.flush(10)
        telemetry.capture(Report(step(2, many[::-1])), step=True)
        telemetry.close()
        for metric in (names.RL_STEP_REWARD_TERM, names.RL_ROLLOUT_REWARD):
            shown = {point.attributes[names.ATTR_RL_TERM.name] for point in sink.series(metric)}
            assert shown == set(many[:MOST_LABELS]), "the first ones go on"
            counted = sink.latest(names.TELEMETRY_OVERFLOW, {names.ATTR_TELEMETRY_METRIC: metric.name})
            assert counted.value == 100
    (warning,) = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert names.ATTR_RL_TERM.name in warning
    assert str(MOST_LABELS) in warning


def test_the_whole_is_there_however_many_parts_it_has() -> None:
    labels = Labels()
    for term in [*map(str, range(MOST_LABELS)), "total", "one more"]:
        found = labels.of(names.RL_STEP_REWARD_TERM, names.ATTR_RL_TERM, term)
        assert (found is None) == (term == "one more")


def test_nothing_is_counted_where_nothing_is_left_out(start: Start) -> None:
    with otlp_sink() as sink:
        telemetry = start(environ={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http})
        train(telemetry, [f"term {index}" for index in range(MOST_LABELS)])
        telemetry.close()
        assert names.TELEMETRY_OVERFLOW.name not in sink.names()


def test_labels_of_any_type_stay_what_they_are() -> None:
    labels = Labels()
    metric, attribute = names.RL_ROLLOUT_REWARD, names.ATTR_RL_TERM
    assert labels.of(metric, attribute, 3) == {attribute.name: 3}
    assert labels.of(metric, attribute, "a") is labels.of(metric, attribute, "a"), "made once"
