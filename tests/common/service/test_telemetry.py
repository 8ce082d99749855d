"""A service's telemetry, from its calls and its state to a collector, a scrape and a provider of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.common.service.occupancy import METRICS
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind
from akka_otel_callbacks.reading import Reader
from akka_otel_callbacks.service import (
    Claim,
    ClaimState,
    FailureReason,
    ImpossibleOrder,
    Operation,
    OperationOutcome,
    OperationStage,
    Pool,
    RunPhase,
    RunProgress,
    ServiceState,
    ServiceTelemetry,
    StageOutcome,
    StageType,
)
from akka_otel_callbacks.testing import telemetry_in_memory
from tests.support.otlp_sink import OtlpSink, wait_until
from tests.support.points import Point
from tools.prometheus import series_name

Serve = Callable[..., ServiceTelemetry]
BUSY = ServiceState(
    pools=[Pool(declared=8, observed=7)],
    claims=[Claim(project="triage", devices=2, state=ClaimState.GRANTED)],
    quotas={"triage": 6},
    runs={("triage", RunPhase.TRAINING): 1},
    pipelines={"triage": 1},
)


def by_attributes(points: list[Point], metric: Any) -> dict[Any, Any]:
    """The metric's figures by the attributes' values in the registry's order; a histogram's count and sum."""
    found = {}
    for point in points:
        if point.name == metric.name:
            key = tuple(point.attributes[a.name] for a in metric.attributes if a.name in point.attributes)
            figure = (point.histogram.count, point.histogram.sum) if point.histogram else point.value
            found[key[0] if len(key) == 1 else key] = figure
    return found


# -- the life of a run


def test_a_run_that_completes(sink: OtlpSink, serve: Serve) -> None:
    telemetry = serve()
    run = telemetry.begin_run("triage", at_s=1000.0)
    for at_s, phase in ((1010.0, RunPhase.SUBMITTING), (1015.0, RunPhase.TRAINING), (1075.0, RunPhase.REGISTERING)):
        run = telemetry.enter_phase(run, phase, at_s=at_s)
    run = telemetry.enter_phase(run, RunPhase.COMPLETED, at_s=1076.5)
    assert run == RunProgress(project="triage", phase="COMPLETED", began_s=1000.0, entered_s=1076.5)
    telemetry.close()
    last = sink.last_export()
    assert by_attributes(last, names.RUN_PHASE_ENTERED) == {
        ("triage", phase): 1 for phase in ("RESOLVING_DATASET", "SUBMITTING", "TRAINING", "REGISTERING", "COMPLETED")
    }
    assert by_attributes(last, names.RUN_PHASE_DURATION) == {
        ("triage", "RESOLVING_DATASET"): (1, 10.0),
        ("triage", "SUBMITTING"): (1, 5.0),
        ("triage", "TRAINING"): (1, 60.0),
        ("triage", "REGISTERING"): (1, 1.5),
    }
    assert by_attributes(last, names.RUN_DURATION) == {("triage", "completed"): (1, 76.5)}
    assert by_attributes(last, names.RUN_FAILURES) == {}


@pytest.mark.parametrize(
    ("phases", "failed_in", "expected"),
    [
        ("SUBMITTING TRAINING FAILED", None, "TRAINING"),
        ("SUBMITTING TRAINING CLEANING_UP FAILED", None, "TRAINING"),
        ("SUBMITTING TRAINING REGISTERING CLEANING_UP FAILED", "CLEANING_UP", "CLEANING_UP"),
        ("SUBMITTING TRAINING CANCELLED", None, None),
        ("SUBMITTING TRAINING COMPLETED", None, None),
    ],
)
def test_a_failure_belongs_to_the_phase_that_failed(
    phases: str, failed_in: str | None, expected: str | None, sink: OtlpSink, serve: Serve
) -> None:
    telemetry = serve()
    first, *others, last = phases.split()
    run = telemetry.begin_run("triage", first)
    for phase in others:
        run = telemetry.enter_phase(run, phase)
    telemetry.enter_phase(run, last, failed_in=failed_in)
    telemetry.close()
    found = by_attributes(sink.last_export(), names.RUN_FAILURES)
    assert found == ({("triage", expected): 1} if expected else {})


def test_a_service_that_starts_anew_goes_on_with_what_it_kept(sink: OtlpSink, serve: Serve) -> None:
    """Another instance has nothing but the columns of the database."""
    columns: Any = {"project": "triage", "phase": "TRAINING", "began_s": 100.0, "entered_s": 400.0}
    telemetry = serve()
    telemetry.enter_phase(RunProgress(**columns), RunPhase.FAILED, at_s=1000.0)
    telemetry.close()
    last = sink.last_export()
    assert by_attributes(last, names.RUN_PHASE_DURATION) == {("triage", "TRAINING"): (1, 600.0)}
    assert by_attributes(last, names.RUN_DURATION) == {("triage", "failed"): (1, 900.0)}
    assert by_attributes(last, names.RUN_PHASE_ENTERED) == {("triage", "FAILED"): 1}


def test_an_impossible_order_records_nothing(sink: OtlpSink, serve: Serve) -> None:
    telemetry = serve()
    run = telemetry.begin_run("triage")
    for wrong in (
        lambda: telemetry.enter_phase(run, RunPhase.PAUSED),
        lambda: telemetry.enter_phase(run, RunPhase.RESOLVING_DATASET),
        lambda: telemetry.begin_run("triage", RunPhase.TRAINING),
    ):
        with pytest.raises(ImpossibleOrder):
            wrong()
    with pytest.raises(ValueError, match="comes with FAILED only"):
        telemetry.enter_phase(run, RunPhase.CANCELLED, failed_in=RunPhase.TRAINING)
    telemetry.close()
    last = sink.last_export()
    assert by_attributes(last, names.RUN_PHASE_ENTERED) == {("triage", "RESOLVING_DATASET"): 1}
    assert by_attributes(last, names.RUN_PHASE_DURATION) == {}
    assert by_attributes(last, names.RUN_DURATION) == {}


def test_a_clock_that_is_behind_costs_a_duration_and_a_line(
    sink: OtlpSink, serve: Serve, log: pytest.LogCaptureFixture
) -> None:
    telemetry = serve()
    for _ in range(2):
        run = telemetry.begin_run("triage", RunPhase.SUBMITTING, at_s=1000.0)
        telemetry.enter_phase(run, RunPhase.QUEUED, at_s=999.5)
    telemetry.close()
    last = sink.last_export()
    assert by_attributes(last, names.RUN_PHASE_DURATION) == {}
    assert by_attributes(last, names.RUN_PHASE_ENTERED)["triage", "QUEUED"] == 2
    warnings = [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "0.5 s before its begin" in warnings[0]


def test_the_time_is_now_unless_it_is_said(sink: OtlpSink, serve: Serve) -> None:
    telemetry = serve()
    before = time.time()
    run = telemetry.begin_run("triage")
    assert before <= run.began_s <= telemetry.enter_phase(run, RunPhase.SUBMITTING).entered_s <= time.time()


# -- what else a service does


def test_gpu_time_stages_and_operations(sink: OtlpSink, serve: Serve) -> None:
    telemetry = serve()
    telemetry.gpu_time("triage", 100.5, derived=True)
    telemetry.gpu_time("triage", 20, derived=True)
    telemetry.gpu_time("triage", 7.25, derived=False)
    telemetry.stage_ended("triage", StageType.CURATE, StageOutcome.COMPLETED, 30.0)
    telemetry.stage_ended("triage", StageType.TRAIN, StageOutcome.FAILED, 400)
    pause, deadline = (Operation.PAUSE, OperationStage.ACKNOWLEDGE, OperationOutcome.TIMED_OUT), FailureReason.DEADLINE
    telemetry.operation(Operation.PAUSE, OperationStage.ACCEPT, OperationOutcome.SUCCEEDED)
    telemetry.operation(*pause, deadline)
    telemetry.operation(*pause, deadline)
    telemetry.operation_ended(*pause, deadline, accepted_s=1000.0, at_s=1060.0)
    telemetry.operation_ended("branch", "start", "succeeded", accepted_s=1000.0, at_s=1002.0)
    telemetry.close()
    last = sink.last_export()
    assert by_attributes(last, names.GPU_TIME) == {("triage", True): 120.5, ("triage", False): 7.25}
    assert by_attributes(last, names.PIPELINE_STAGE_DURATION) == {
        ("triage", "curate", "completed"): (1, 30.0),
        ("triage", "train", "failed"): (1, 400.0),
    }
    assert by_attributes(last, names.SERVICE_OPERATIONS) == {
        ("pause", "accept", "succeeded"): 1,
        ("pause", "acknowledge", "timed_out", "deadline"): 2,
    }
    assert by_attributes(last, names.SERVICE_OPERATION_DURATION) == {
        ("pause", "acknowledge", "timed_out", "deadline"): (1, 60.0),
        ("branch", "start", "succeeded"): (1, 2.0),
    }


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: t.begin_run("triage", "DREAMING"), "'DREAMING' is no .*run.phase: it is one of RESOLVING_DATASET, "),
        (lambda t: t.begin_run(""), "project is '', which is no name"),
        (lambda t: t.begin_run(7), "project is 7"),
        (lambda t: t.begin_run("triage", at_s=float("nan")), "at_s is nan, which is no time"),
        (lambda t: t.enter_phase(t.begin_run("triage"), "FAILED", failed_in="DREAMING"), "'DREAMING' is no"),
        (lambda t: t.gpu_time("triage", -1.0, derived=True), "duration_s is -1.0"),
        (lambda t: t.gpu_time("triage", float("inf"), derived=True), "duration_s is inf"),
        (lambda t: t.gpu_time("triage", 1.0, derived=1), "derived is 1: it is True or False"),
        (lambda t: t.stage_ended("triage", "dream", "completed", 1.0), "'dream' is no .*stage.type"),
        (lambda t: t.stage_ended("triage", "train", "cancelled", 1.0), "'cancelled' is no .*stage.outcome"),
        (lambda t: t.stage_ended("triage", "train", "failed", None), "duration_s is None"),
        (lambda t: t.operation("explode", "accept", "succeeded"), "'explode' is no .*service.operation"),
        (lambda t: t.operation("pause", "accept", "failed"), "outcome is failed needs a reason, one of validation, "),
        (lambda t: t.operation("pause", "accept", "succeeded", "internal"), "succeeded has no failure reason"),
        (lambda t: t.operation("pause", "accept", "failed", "bad luck"), "'bad luck' is no"),
        (lambda t: t.operation_ended("pause", "accept", "succeeded", accepted_s="yesterday"), "accepted_s is 'yester"),
    ],
)
def test_a_wrong_word_is_a_clear_error_and_records_nothing(
    call: Callable[[ServiceTelemetry], object], says: str, sink: OtlpSink, serve: Serve
) -> None:
    telemetry = serve()
    with pytest.raises(ValueError, match=says):
        call(telemetry)
    telemetry.close()
    told = {point.name for point in sink.metrics()} - {names.RUN_PHASE_ENTERED.name}
    assert told == set()


# -- the state


def test_the_gauges_are_of_the_state_as_it_is_now(sink: OtlpSink, serve: Serve) -> None:
    current = [BUSY]
    telemetry = serve(lambda: current[0], instance="pod-1")
    telemetry.flush(5)
    first = sink.last_export()
    assert {point.name for point in first} == {metric.name for metric in METRICS}
    assert by_attributes(first, names.POOL_CLAIMS)["GRANTED", "any", False, "pod-1"] == 1
    assert by_attributes(first, names.POOL_DEVICES_OBSERVED) == {("any", False, "pod-1"): 7}
    current[0] = ServiceState(pools=[Pool(declared=8)])
    telemetry.flush(5)
    second = sink.last_export()
    assert by_attributes(second, names.POOL_CLAIMS)["GRANTED", "any", False, "pod-1"] == 0
    assert by_attributes(second, names.POOL_DEVICES_OBSERVED) == {}
    assert by_attributes(second, names.PROJECT_DEVICES_QUOTA) == {}


def test_a_state_that_hangs_keeps_neither_the_service_nor_its_end(
    sink: OtlpSink, serve: Serve, log: pytest.LogCaptureFixture
) -> None:
    asked, answer = threading.Event(), threading.Event()

    def state() -> ServiceState:
        asked.set()
        answer.wait(60)
        return BUSY

    telemetry = serve(state)
    try:
        assert not telemetry.flush(0.1)
        assert asked.wait(10)
        telemetry.enter_phase(telemetry.begin_run("triage"), RunPhase.SUBMITTING)
        telemetry.close(timeout_s=0.2)
        assert sink.metrics() == []
    finally:
        answer.set()
    assert "could not be collected within 0.2 s" in log.text


def test_all_gauges_of_an_export_are_of_one_reading(sink: OtlpSink, serve: Serve) -> None:
    readings: list[int] = []

    def state() -> ServiceState:
        readings.append(len(readings))
        count = len(readings)
        return ServiceState(
            pools=[Pool(declared=count, observed=count)], quotas={"triage": count}, pipelines={"triage": count}
        )

    telemetry = serve(state)
    for export in range(1, 4):
        telemetry.flush(5)
        assert {point.value for point in sink.last_export()} == {export}
    assert len(readings) == 3


def test_a_state_that_cannot_be_read_is_absent_and_costs_one_line(
    sink: OtlpSink, serve: Serve, failures: Counter[Any], log: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [BUSY]

    def state() -> Any:
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    telemetry = serve(state)
    telemetry.gpu_time("triage", 1.0, derived=True)
    telemetry.flush(5)
    assert len({point.name for point in sink.last_export()}) == 9
    locked, wrong = OSError("the database is locked"), {"pools": []}
    for answers[0] in (locked, locked, wrong):
        telemetry.flush(5)
        assert {point.name for point in sink.last_export()} == {names.GPU_TIME.name}
    answers[0] = BUSY
    telemetry.flush(5)
    assert len({point.name for point in sink.last_export()}) == 9
    where = f"the callback of {METRICS[0].name}"
    assert failures == {(where, "OSError"): 2, (where, "TypeError"): 1}
    warnings = [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert "the database is locked" in warnings[0]
    assert "the state is a dict, where a ServiceState is wanted" in warnings[1]


a_pool: Any = Pool
a_claim: Any = Claim
a_state: Any = ServiceState  # so that a type checker lets the wrong ones through


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: a_pool(declared=-1), "declared is -1"),
        (lambda: a_pool(declared=8.0), "declared is 8.0, which is no count: it is an int from 0"),
        (lambda: a_pool(declared=True), "declared is True"),
        (lambda: a_pool(declared=2**63), "which is no count"),
        (lambda: a_pool(declared=8, observed=-1), "observed is -1"),
        (lambda: a_pool(declared=8, accelerator=""), "accelerator is ''"),
        (lambda: a_pool(declared=8, serving="yes"), "serving is 'yes': it is True or False"),
        (lambda: a_claim(devices=1, state="granted"), "'granted' is no .*claim.state: it is one of GRANTED, QUEUED"),
        (lambda: a_claim(devices=None, state="QUEUED"), "devices is None"),
        (lambda: a_claim(devices=1, state="QUEUED", project=" "), "project is ' '"),
        (lambda: a_state(pools=[8]), "pools has 8, which is no Pool"),
        (lambda: a_state(claims=[a_pool(declared=8)]), "claims has Pool.*, which is no Claim"),
        (lambda: a_state(quotas={"triage": None}), "the quota of triage is None"),
        (lambda: a_state(runs={("triage", "DREAMING"): 1}), "'DREAMING' is no"),
        (lambda: a_state(runs={"TRAINING": 1}), "runs has 'TRAINING', which is no tuple"),
        (lambda: a_state(pipelines={"": 1}), "project is ''"),
    ],
)
def test_a_wrong_state_is_a_clear_error(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        wrong()


NAMED = st.dictionaries(st.text(), st.integers())
ANYTHING = st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers()), NAMED)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=ANYTHING, project=ANYTHING, phase=ANYTHING, figure=ANYTHING)
def test_whatever_a_service_says_is_an_error_of_value_or_arrives(
    answer: Any, project: Any, phase: Any, figure: Any, failures: Counter[Any]
) -> None:
    with telemetry_in_memory() as memory:
        telemetry = ServiceTelemetry(lambda: answer, meter_provider=memory.meter_provider)
        calls = (
            lambda: telemetry.begin_run(project, phase),
            lambda: telemetry.gpu_time(project, figure, derived=True),
            lambda: telemetry.stage_ended(project, phase, "failed", figure),
            lambda: telemetry.operation(phase, phase, phase, figure),
            lambda: telemetry.operation_ended("pause", "release", "succeeded", accepted_s=figure),
            lambda: ServiceState(
                pools=[Pool(declared=figure, accelerator=project)], runs={("triage", str(phase)): figure}
            ),
        )
        for call in calls:
            with contextlib.suppress(ValueError):
                call()
        found = memory.names()
        telemetry.close()
    assert found <= {names.GPU_TIME.name, names.SERVICE_OPERATION_DURATION.name}


@pytest.mark.parametrize("state", [None, BUSY, 7])
def test_a_state_that_is_no_function_is_an_error_at_once(state: Any, serve: Serve) -> None:
    with pytest.raises(TypeError, match="plain function"):
        serve(state)


def test_an_async_state_is_an_error_at_once(serve: Serve) -> None:
    async def state() -> ServiceState:
        return BUSY

    with pytest.raises(TypeError, match="not an async one"):
        serve(state)


# -- who it is


def test_two_instances_report_the_same_under_their_own_names(sink: OtlpSink, serve: Serve) -> None:
    for instance in ("pod-1", "pod-2"):
        serve(lambda: BUSY, instance=instance).close()
    for metric in METRICS:
        by_instance: dict[Any, list[Any]] = {}
        for point in sink.series(metric):
            assert names.ATTR_INSTANCE in metric.attributes or names.ATTR_INSTANCE.name not in point.attributes
            others = {name: value for name, value in point.attributes.items() if name != names.ATTR_INSTANCE.name}
            by_instance.setdefault(point.attributes.get(names.ATTR_INSTANCE.name), []).append((others, point.value))
        if names.ATTR_INSTANCE in metric.attributes:
            assert by_instance.keys() == {"pod-1", "pod-2"}
            assert by_instance["pod-1"] == by_instance["pod-2"]
    assert len({point.resource[names.ATTR_SERVICE_INSTANCE_ID.name] for point in sink.metrics()}) == 2


def test_no_series_names_a_run_whatever_the_environment_says(
    sink: OtlpSink, serve: Serve, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    environment.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", f"{names.ATTR_RUN_ID.name}=run-7,{names.ATTR_PROJECT.name}=triage,team=blue"
    )
    environment.setenv("OTEL_SERVICE_NAME", "trainer")
    environment.setenv("K8S_POD_NAME", "trainer-7d9f8b6c4-x2k8q")
    telemetry = serve(lambda: BUSY, resource={"deployment.environment.name": "test"})
    telemetry.enter_phase(telemetry.begin_run("triage"), RunPhase.FAILED)
    telemetry.close()
    assert telemetry.instance == "trainer-7d9f8b6c4-x2k8q"
    of_runs = {names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name, names.ATTR_PIPELINE_ID.name}
    for point in sink.metrics():
        assert of_runs.isdisjoint({*point.attributes, *point.resource})
        assert names.ATTR_PROJECT.name not in point.resource
        assert "run-7" not in {*point.attributes.values(), *point.resource.values()}
        assert point.resource["team"] == "blue"
        assert point.resource["deployment.environment.name"] == "test"
        assert point.resource[names.ATTR_SERVICE_NAME.name] == "trainer"
        assert point.resource[names.ATTR_K8S_POD_NAME.name] == "trainer-7d9f8b6c4-x2k8q"
    assert "a service has no attributes of a single run" in log.text
    assert sink.spans() == [], "a service is no job"


def test_the_instance_is_the_pod_or_the_process(serve: Serve, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_SDK_DISABLED", "true")
    assert serve().instance == f"{socket.gethostname()}:{os.getpid()}"
    environment.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert serve().instance == socket.gethostname()
    environment.setenv("POD_NAME", "trainer-1")
    assert serve().instance == "trainer-1"
    assert serve(instance="mine").instance == "mine"
    with pytest.raises(ValueError, match="instance is ''"):
        serve(instance="")


def test_without_an_exporter_every_call_is_still_checked_and_costs_nothing(
    serve: Serve, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_SDK_DISABLED", "true")
    telemetry = serve(lambda: 1 / 0)
    run = telemetry.enter_phase(telemetry.begin_run("triage"), RunPhase.SUBMITTING)
    assert run.phase == RunPhase.SUBMITTING
    with pytest.raises(ImpossibleOrder):
        telemetry.enter_phase(run, RunPhase.SUBMITTING)


# -- other ways out


def test_every_metric_of_a_service_is_published_as_the_registry_says(sink: OtlpSink, serve: Serve) -> None:
    telemetry = serve(lambda: BUSY)
    run = telemetry.enter_phase(telemetry.begin_run("triage"), RunPhase.SUBMITTING)
    telemetry.enter_phase(run, RunPhase.FAILED)
    telemetry.gpu_time("triage", 1.0, derived=False)
    telemetry.stage_ended("triage", "evaluate", "completed", 1.0)
    telemetry.operation("hold", "retain", "rejected", "retention")
    telemetry.operation_ended("hold", "retain", "rejected", "retention", accepted_s=1.0)
    telemetry.close()
    points = {point.name: point for point in sink.last_export()}
    assert set(points) == {metric.name for metric in names.SERVICE_METRICS}
    kinds = {Kind.GAUGE: "gauge", Kind.COUNTER: "sum", Kind.HISTOGRAM: "histogram"}
    for metric in names.SERVICE_METRICS:
        point = points[metric.name]
        assert (point.kind, point.unit, point.description) == (kinds[metric.kind], metric.unit, metric.description)
        assert point.monotonic == (metric.kind is Kind.COUNTER)
        assert [*point.attributes] == [attribute.name for attribute in metric.attributes]
        if point.histogram:
            assert point.histogram.bounds == metric.buckets


def test_a_scrape_has_them_under_their_names(serve: Serve, environment: pytest.MonkeyPatch) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="an extra, which this environment lacks")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    environment.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    telemetry = serve(lambda: BUSY, instance="pod-1")
    telemetry.operation("pause", "accept", "succeeded")
    telemetry.operation("pause", "accept", "failed", "internal")
    telemetry.enter_phase(telemetry.begin_run("triage", at_s=1.0), RunPhase.SUBMITTING, at_s=3.0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        samples = [s for f in parser.text_string_to_metric_families(response.read().decode()) for s in f.samples]
    found = {(s.name, s.labels.get("akka_optimize_training_claim_state")): s for s in samples}
    claimed = found[series_name(names.POOL_DEVICES_CLAIMED, "scrape"), "GRANTED"]
    assert claimed.value == 2
    assert claimed.labels["akka_optimize_training_instance"] == "pod-1"
    assert claimed.labels["akka_optimize_training_pool_serving"] == "false"
    operations = [s for s in samples if s.name == series_name(names.SERVICE_OPERATIONS, "scrape")]
    assert sorted(s.labels["akka_optimize_training_service_failure_reason"] for s in operations) == ["", "internal"]
    assert [s.value for s in samples if s.name == series_name(names.RUN_PHASE_DURATION, "scrape") + "_sum"] == [2.0]


def test_several_exporters_have_everything_each(
    sink: OtlpSink, serve: Serve, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each reads the state for itself; one wants totals and the other changes."""
    environment.setenv("OTEL_METRICS_EXPORTER", "otlp,file")
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    environment.setenv("AKKA_OTEL_DIR", str(tmp_path))
    telemetry = serve(lambda: BUSY)
    for seconds in (1.0, 2.5, 4.0):
        telemetry.gpu_time("triage", seconds, derived=True)
        telemetry.stage_ended("triage", "train", "completed", seconds)
        telemetry.flush(5)
    telemetry.close()
    assert sum(point.value or 0 for point in sink.series(names.GPU_TIME)) == 7.5
    stages = [point.histogram for point in sink.series(names.PIPELINE_STAGE_DURATION) if point.histogram]
    assert (sum(one.count for one in stages), sum(one.sum or 0 for one in stages)) == (3, 7.5)
    (run,) = Reader([tmp_path / "metrics.jsonl"]).read()
    written = {series.name: series for series in run.session.sorted_series()}
    assert written[names.GPU_TIME.name].values[-1] == 7.5
    whole = written[names.PIPELINE_STAGE_DURATION.name].histogram
    assert whole is not None
    assert (whole.count, whole.mean) == (3, 2.5)
    assert {metric.name for metric in METRICS} <= written.keys() & sink.names()


def test_a_provider_of_the_service_s_own_and_what_it_has_after_the_end() -> None:
    with telemetry_in_memory() as memory:
        with ServiceTelemetry(lambda: BUSY, meter_provider=memory.meter_provider) as telemetry:
            telemetry.enter_phase(telemetry.begin_run("triage", at_s=1.0), RunPhase.SUBMITTING, at_s=3.0)
            assert memory.latest(names.POOL_CLAIMS.name, {names.ATTR_CLAIM_STATE.name: "GRANTED"}) == 1
        assert memory.histogram(names.RUN_PHASE_DURATION.name).sum == 2.0
        telemetry.gpu_time("triage", 1.0, derived=True)
        telemetry.stage_ended("triage", "train", "completed", 1.0)
        assert names.GPU_TIME.name not in memory.names()
        assert names.PIPELINE_STAGE_DURATION.name not in memory.names()


def test_a_forked_worker_does_not_repeat_its_parent(sink: OtlpSink, serve: Serve) -> None:
    """A server that forks after the telemetry began: the child is silent, and the parent's figures come once."""
    telemetry = serve(lambda: BUSY)
    telemetry.gpu_time("triage", 1.0, derived=True)
    pid = os.fork()
    if pid == 0:
        telemetry.gpu_time("triage", 100.0, derived=True)
        telemetry.stage_ended("triage", "train", "completed", 1.0)
        telemetry.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    telemetry.close()
    wait_until(lambda: sink.series(names.GPU_TIME))
    assert {point.value for point in sink.series(names.GPU_TIME)} == {1.0}
    assert names.PIPELINE_STAGE_DURATION.name not in sink.names()
