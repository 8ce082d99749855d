"""A publisher beside the training: in its process for longer, or in another process of the run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.common.export.address_files import look
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep
from tests.common.checkpoints.conftest import Seen
from tests.common.scripts import run
from tests.support.otlp_sink import wait_until

RUN_ID, ATTEMPT, INSTANCE = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name, names.ATTR_SERVICE_INSTANCE_ID.name


def resources(seen: Seen) -> list[dict[str, Any]]:
    """Of the checkpoints' figures."""
    return [dict(point.resource) for point in seen.sink.series(names.CHECKPOINT_OPERATION_DURATION)]


def test_a_publisher_that_outlives_the_training_is_of_its_run_and_its_trace(
    seen: Seen, start: Callable[..., Telemetry]
) -> None:
    training = start(run_id="run-7")
    with checkpoints.reporting():
        training.close()
        with checkpoints.publish():
            pass
    (resource,) = resources(seen)
    assert (resource[RUN_ID], resource[ATTEMPT]) == ("run-7", 1)
    assert resource[INSTANCE].startswith("run-7.1.checkpoints-")
    assert seen.span("publish").parent_span_id == seen.job().span_id
    assert seen.span("publish").trace_id == seen.job().trace_id


def test_one_that_is_opened_before_the_training_waits_for_it(seen: Seen, start: Callable[..., Telemetry]) -> None:
    with checkpoints.reporting():
        training = start(run_id="run-8")
        threads = [threading.Thread(target=_publish) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        training.close()
    assert {resource[RUN_ID] for resource in resources(seen)} == {"run-8"}
    assert len({resource[INSTANCE] for resource in resources(seen)}) == 1
    assert len(seen.spans("publish")) == 5
    assert {span.parent_span_id for span in seen.spans("publish")} == {seen.job().span_id}


def _publish() -> None:
    with checkpoints.publish():
        pass


CHILD = """
from akka_otel_callbacks import checkpoints
with checkpoints.pending(lambda: 2), checkpoints.reporting():
    with checkpoints.publish(storage_mode="object_store"), checkpoints.upload() as upload:
        upload.moved(1000)
"""


def test_another_process_finds_the_run_and_its_trace_in_the_environment(
    seen: Seen, start: Callable[..., Telemetry], tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=réd")
    training = start(run_id="run, 9=x", environ=os.environ)
    done = run(CHILD, checkpoints.environment(), tmp_path, prelude="")
    assert done.returncode == 0, done.stderr
    training.close()
    found = resources(seen)
    assert {resource[RUN_ID] for resource in found} == {"run, 9=x"}
    assert {resource["team"] for resource in found} == {"réd"}
    assert {resource[names.ATTR_PROCESS_PID.name] for resource in found} != {os.getpid()}
    assert {span.name for span in seen.sink.spans() if span.parent_span_id == seen.job().span_id} == {
        seen.span("publish").name
    }
    assert {span.trace_id for span in seen.sink.spans()} == {seen.job().trace_id}
    assert seen.sizes(operation="upload", storage_mode="object_store") is not None
    assert seen.sink.latest(names.CHECKPOINT_PENDING).value == 2


def test_a_process_that_nobody_told_is_a_run_of_the_name_it_gives_itself(
    seen: Seen, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    with checkpoints.reporting(run_id="mine", attempt=3, project="p", resource={INSTANCE: "one"}):
        _publish()
    (resource,) = resources(seen)
    assert [resource[name] for name in (RUN_ID, ATTEMPT, names.ATTR_PROJECT.name, INSTANCE)] == ["mine", 3, "p", "one"]
    span = seen.span("publish")
    assert (span.trace_id, span.parent_span_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def test_a_trace_that_is_not_sampled_gets_no_spans(seen: Seen, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    with checkpoints.reporting(run_id="mine"):
        _publish()
    assert resources(seen) != []
    assert seen.sink.spans() == []


def test_two_in_one_run_are_two_instances(seen: Seen, start: Callable[..., Telemetry]) -> None:
    training = start(run_id="run")
    for _ in range(2):
        with checkpoints.reporting():
            _publish()
    training.close()
    assert len({resource[INSTANCE] for resource in resources(seen)}) == 2


def test_it_has_files_and_a_port_of_its_own(
    environment: pytest.MonkeyPatch, no_telemetry: None, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """It may end before anybody scrapes it."""
    environment.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    environment.setenv("AKKA_OTEL_DIR", str(tmp_path / "figures"))
    with checkpoints.reporting(run_id="run"):
        _publish()
        wait_until(lambda: look(tmp_path / "figures"))
        (found,) = look(tmp_path / "figures")
        assert found.address.startswith("localhost:")
        assert found.address != "localhost:9464"
    assert look(tmp_path / "figures") == []
    assert {record.levelname for record in log.records} == {"INFO"}
    (file,) = (tmp_path / "figures").glob("metrics*.jsonl")
    assert file.name.startswith("metrics-checkpoints-")
    assert names.CHECKPOINT_OPERATION_DURATION.name in file.read_text()


def test_a_handed_provider_takes_its_place(no_telemetry: None, environment: pytest.MonkeyPatch) -> None:
    from akka_otel_callbacks.testing import telemetry_in_memory

    with telemetry_in_memory() as memory:
        providers: dict[str, Any] = {
            "meter_provider": memory.meter_provider,
            "tracer_provider": memory.tracer_provider,
        }
        with checkpoints.reporting(run_id="run", **providers):
            _publish()
        assert memory.histogram(names.CHECKPOINT_OPERATION_DURATION.name).count == 1
    assert [span.name for span in memory.spans()] == [names.SPAN_CHECKPOINT_OPERATION.of("publish")]


def test_switched_off_it_does_nothing(
    seen: Seen, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    environment.setenv("AKKA_OTEL_DISABLE", "1")
    with checkpoints.reporting(run_id="run") as reporting:
        _publish()
        assert reporting.telemetry is None
        assert reporting.flush()
    assert seen.sink.requests == []
    assert list(tmp_path.iterdir()) == []


def test_after_its_end_the_training_has_the_rest(seen: Seen, start: Callable[..., Telemetry]) -> None:
    training = start(run_id="run")
    with checkpoints.reporting() as reporting:
        assert reporting.flush(5)
    _publish()
    training.close()
    (resource,) = resources(seen)
    assert resource[INSTANCE] == "run.1.0"


def test_without_a_telemetry_nothing_is_handed_on(no_telemetry: None) -> None:
    assert checkpoints.environment() == {}


def test_what_is_handed_on_is_of_the_run_and_not_of_this_process(start: Callable[..., Telemetry]) -> None:
    telemetry = start(run_id="run")
    handed = checkpoints.environment(telemetry)
    assert set(handed) == {"AKKA_OTEL_RUN", "TRACEPARENT"}
    assert "process.pid" not in handed["AKKA_OTEL_RUN"]
    assert "service.instance.id" not in handed["AKKA_OTEL_RUN"]


FORKS = """
import os
from akka_otel_callbacks import checkpoints
telemetry = start()
with checkpoints.reporting(), checkpoints.stage():
    child = os.fork()
    if child == 0:
        with checkpoints.upload():
            pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
telemetry.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_child_publishes_nothing_a_second_time(seen: Seen, tmp_path: Path) -> None:
    done = run(FORKS, {}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [series["operation"] for series in seen.series()] == ["stage"]
    assert "checkpoint upload (success" in done.stderr
    assert "is not published" in done.stderr


def test_importing_the_face_starts_nothing(tmp_path: Path) -> None:
    source = """
import sys
from akka_otel_callbacks import checkpoints
with checkpoints.publish(), checkpoints.upload() as upload:
    upload.moved(1)
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "torch", "requests"))])
"""
    done = run(source, {}, tmp_path, prelude="")
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_a_telemetry_that_cannot_be_opened_costs_the_publisher_nothing(
    no_telemetry: None, environment: pytest.MonkeyPatch, failures: Any
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LookupError

    environment.setattr(Telemetry, "start", fail)
    with checkpoints.reporting(run_id="run"):
        _publish()
    assert set(failures) == {("Reporting._open", "LookupError")}


def test_what_a_run_has_before_a_reporting_is_unchanged(seen: Seen) -> None:
    """An identity that is handed over whole keeps the types of its attributes."""
    given = identify({}, engine={names.ATTR_RUN_LORA_RANK: 8, names.ATTR_RUN_LEARNING_RATE: 1e-5}, run_id="typed")
    training = Telemetry.start(given, RLStep)
    with checkpoints.reporting():
        _publish()
    training.close()
    (resource,) = resources(seen)
    assert {key: value for key, value in resource.items() if key in given.attributes and key != INSTANCE} == {
        key: value for key, value in given.attributes.items() if key != INSTANCE
    }
