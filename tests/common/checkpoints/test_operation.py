"""Checkpoint operations as `with` blocks: what a collector gets of them, and what a training notices of them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.checkpoints import ArtifactKind, FailureReason, StorageMode
from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.checkpoints.operation import Operation, Transfer
from akka_otel_callbacks.common.run.identity import Identity
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.testing import telemetry_in_memory
from tests.common.checkpoints.conftest import Seen, short
from tests.support.otlp_sink import wait_until

OPERATIONS = names.ATTR_CHECKPOINT_OPERATION.values
USUAL = {
    "stage": "internal",
    "publish": "internal",
    "upload": "transfer",
    "catalog_reserve": "catalog",
    "catalog_acknowledge": "catalog",
    "materialize": "transfer",
    "validate": "validation",
}


def test_each_operation_has_a_function_of_its_name() -> None:
    assert set(OPERATIONS) == USUAL.keys()
    for name in OPERATIONS:
        made = getattr(checkpoints, name)()
        assert (type(made), made.operation) == (type(checkpoints.operation(name)), name)
        assert isinstance(made, Transfer) == (name in ("upload", "materialize"))


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_a_duration_and_a_span(name: str, telemetry: Telemetry, seen: Seen) -> None:
    begin = time.monotonic()
    with checkpoints.operation(name, artifact_kind=ArtifactKind.ADAPTER, storage_mode=StorageMode.OBJECT_STORE):
        time.sleep(0.02)
    took = time.monotonic() - begin
    telemetry.close()
    labels = {"operation": name, "outcome": "success", "artifact_kind": "adapter", "storage_mode": "object_store"}
    assert seen.series() == [labels]
    durations = seen.durations(**labels)
    assert durations is not None
    assert durations.count == 1
    assert 0.02 <= durations.sum <= took
    span = seen.span(name)
    assert short(span) == labels
    assert (span.parent_span_id, span.trace_id, span.status) == (seen.job().span_id, seen.job().trace_id, 0)
    assert (span.end_ns - span.start_ns) / 1e9 == pytest.approx(durations.sum)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_is_a_failure_and_passes_on_as_it_came(name: str, telemetry: Telemetry, seen: Seen) -> None:
    error = ValueError("s3://key:secret@bucket")
    with pytest.raises(ValueError) as raised, checkpoints.operation(name):
        raise error
    assert raised.value is error
    assert error.__context__ is None
    telemetry.close()
    assert seen.series() == [{"operation": name, "outcome": "failure", "failure_reason": USUAL[name]}]
    span = seen.span(name)
    assert (span.status, span.attributes[names.ATTR_ERROR_TYPE.name]) == (2, "ValueError")
    assert (span.events, "secret" in repr(span)) == ((), False)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_interrupts_an_operation_is_no_fault_of_the_storage(
    error: type[BaseException], telemetry: Telemetry, seen: Seen
) -> None:
    with pytest.raises(error), checkpoints.upload():
        raise error
    telemetry.close()
    assert seen.series() == [{"operation": "upload", "outcome": "failure", "failure_reason": "internal"}]


def test_a_failure_that_nothing_raised(telemetry: Telemetry, seen: Seen) -> None:
    with checkpoints.upload() as upload:
        upload.failed(FailureReason.CONFLICT)
    telemetry.close()
    assert seen.series() == [{"operation": "upload", "outcome": "failure", "failure_reason": "conflict"}]
    assert seen.span("upload").status == 2


def test_a_failure_has_the_reason_of_what_failed_within_it(telemetry: Telemetry, seen: Seen) -> None:
    """However the exception is wrapped on its way; one that was dealt with is not the reason of a later one."""

    def wrapped() -> None:
        try:
            with checkpoints.upload() as upload:
                upload.failed(FailureReason.CONFLICT)
                raise FileExistsError
        except FileExistsError as error:
            raise RuntimeError("not published") from error

    def publish(then: Callable[[], None]) -> None:
        with checkpoints.publish():
            with suppress(OSError), checkpoints.catalog_reserve():
                raise OSError
            then()

    with pytest.raises(RuntimeError):
        publish(wrapped)
    with pytest.raises(LookupError):
        publish(lambda: {}["of something else"])
    telemetry.close()
    publications = [series for series in seen.series() if series["operation"] == "publish"]
    assert [series["failure_reason"] for series in publications] == ["conflict", "internal"]


def test_parts_are_spans_under_the_whole_and_are_about_the_same(telemetry: Telemetry, seen: Seen) -> None:
    with checkpoints.publish(storage_mode=StorageMode.SHARED_FILESYSTEM, snapshot_id="s") as publication:
        with checkpoints.upload(artifact_kind=ArtifactKind.FULL_STATE):
            pass
        publication.describe(artifact_kind=ArtifactKind.FULL_STATE)
        with checkpoints.catalog_acknowledge(snapshot_id="another"):
            pass
    with checkpoints.validate():
        pass
    telemetry.close()
    shared = {"outcome": "success", "storage_mode": "shared_filesystem", "artifact_kind": "full_state"}
    assert short(seen.span("publish")) == {"operation": "publish", "snapshot_id": "s", **shared}
    assert short(seen.span("upload")) == {"operation": "upload", "snapshot_id": "s", **shared}
    assert short(seen.span("catalog_ack"))["snapshot_id"] == "another"
    publication_id = seen.span("publish").span_id
    assert {seen.span(part).parent_span_id for part in ("upload", "catalog_acknowledge")} == {publication_id}
    assert seen.span("validate").parent_span_id == seen.job().span_id
    assert "snapshot_id" not in short(seen.span("validate"))


def test_exact_identities_stand_on_the_span_alone(telemetry: Telemetry, seen: Seen) -> None:
    about: dict[str, Any] = {
        "snapshot_id": "f3a82e7d4b390b66",
        "restore_mode": "branch",
        "source_run_id": "parent-run",
        "source_attempt": 2,
        "source_engine_step": 100,
    }
    with checkpoints.materialize(**about):
        pass
    telemetry.close()
    plain = {"operation": "materialize", "outcome": "success"}
    assert seen.series() == [plain]
    assert short(seen.span("materialize")) == {**plain, **about}


def test_parts_in_a_pool_of_threads_name_the_whole(telemetry: Telemetry, seen: Seen) -> None:
    def upload(size: int, within: Operation) -> None:
        with checkpoints.upload(parent=within) as transfer:
            transfer.moved(size)

    with checkpoints.publish(storage_mode=StorageMode.OBJECT_STORE) as publication, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda size: upload(size, publication), range(20)))
    telemetry.close()
    sizes = seen.sizes(operation="upload", storage_mode="object_store")
    assert sizes is not None
    assert (sizes.count, sizes.sum) == (20, sum(range(20)))
    assert {span.parent_span_id for span in seen.spans("upload")} == {seen.span("publish").span_id}


def test_what_moved_adds_up_also_of_a_failure(telemetry: Telemetry, seen: Seen) -> None:
    for parts, error in (((5, 7.0), None), ((), None), ((0,), None), ((100,), OSError)):
        try:
            with checkpoints.upload() as upload:
                for part in parts:
                    upload.moved(part)
                if error is not None:
                    raise error
        except OSError:
            pass
    telemetry.close()
    whole, broken = seen.sizes(outcome="success"), seen.sizes(outcome="failure")
    assert whole is not None
    assert broken is not None
    assert (whole.count, whole.sum, whole.min) == (2, 12, 0), "an amount that nobody told is none"
    assert (broken.count, broken.sum) == (1, 100)
    point = seen.sink.latest(names.CHECKPOINT_TRANSFER_SIZE)
    assert set(short(point)) == {"operation", "outcome"}


def test_one_transfer_may_move_in_many_threads(telemetry: Telemetry, seen: Seen) -> None:
    with checkpoints.upload() as upload, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [upload.moved(1) for _ in range(1000)], range(8)))
    telemetry.close()
    sizes = seen.sizes()
    assert sizes is not None
    assert sizes.sum == 8000


def test_entering_again_is_another_attempt(telemetry: Telemetry, seen: Seen) -> None:
    upload = checkpoints.upload()
    with suppress(OSError), upload:
        upload.moved(10)
        upload.failed(FailureReason.CONFLICT)
        raise OSError
    with upload:
        upload.moved(20)
    telemetry.close()
    whole = seen.sizes(outcome="success")
    assert whole is not None
    assert whole.sum == 20
    assert {series["outcome"]: series.get("failure_reason") for series in seen.series()} == {
        "failure": "conflict",
        "success": None,
    }
    assert len(seen.spans("upload")) == 2


def test_within_itself_it_is_no_attempt_and_harms_no_other(
    telemetry: Telemetry, seen: Seen, failures: Any, caplog: pytest.LogCaptureFixture
) -> None:
    whole = checkpoints.publish()
    part = checkpoints.upload(parent=whole)
    with part:
        part.moved(1)
        with part, whole:
            part.moved(2)
        part.moved(3)
    with checkpoints.stage():
        pass
    telemetry.close()
    said = [message for message in caplog.messages if "while under way" in message]
    assert [message.split()[1] for message in said] == ["upload", "publish"]
    assert {labels["operation"] for labels in seen.series()} == {"upload", "stage"}
    size = seen.sizes(operation="upload", outcome="success")
    assert size is not None
    assert (size.count, size.sum) == (1, 6)
    assert not failures


def test_in_two_threads_at_once_it_is_one_attempt(telemetry: Telemetry, seen: Seen) -> None:
    upload, entered, ended = checkpoints.upload(), threading.Event(), threading.Event()

    def other() -> None:
        with upload:
            entered.set()
            ended.wait()

    thread = threading.Thread(target=other)
    begin = time.monotonic()
    with upload:
        time.sleep(0.02)
        thread.start()
        assert entered.wait(30)
        least = time.monotonic() - begin
    ended.set()
    thread.join()
    telemetry.close()
    durations = seen.durations(operation="upload", outcome="success")
    assert durations is not None
    assert durations.count == 1
    assert durations.sum >= least - 0.01
    assert len(seen.spans("upload")) == 1


def test_one_that_was_never_entered_is_nothing(telemetry: Telemetry, seen: Seen, failures: Any) -> None:
    upload = checkpoints.upload(snapshot_id="s")
    upload.moved(3)
    upload.failed(FailureReason.CONFLICT)
    with checkpoints.stage() as stage:
        pass
    assert stage._parent is None
    telemetry.close()
    assert [series["operation"] for series in seen.series()] == ["stage"]
    assert not failures


def test_a_generator_that_nobody_ends_keeps_to_itself(telemetry: Telemetry, seen: Seen) -> None:
    """Its block is left when it is collected, maybe by another thread; what comes in between is no part of it."""

    def uploading() -> Any:
        with checkpoints.upload():
            yield

    generator = uploading()
    next(generator)
    ended = threading.Thread(target=generator.close)
    ended.start()
    ended.join()
    telemetry.close()
    assert seen.series() == [{"operation": "upload", "outcome": "failure", "failure_reason": "internal"}]


# -- bad input


def test_an_unknown_operation_is_an_error_that_names_the_known() -> None:
    with pytest.raises(ValueError, match=r"'uplaod' is no checkpoint operation; there are .*upload"):
        checkpoints.operation("uplaod")


def test_an_unknown_argument_is_an_error_as_of_any_function() -> None:
    with pytest.raises(TypeError, match=r"has no snapshot; it has .*snapshot_id"):
        checkpoints.upload(snapshot="s")  # type: ignore[call-arg]


def test_an_unknown_value_is_left_out_with_one_warning(
    telemetry: Telemetry, seen: Seen, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with checkpoints.upload(storage_mode="floppy", source_attempt="first") as upload:  # type: ignore[typeddict-item]
            upload.describe(artifact_kind="weights", snapshot_id="s")
            upload.moved(-1)
            upload.moved(5)
            upload.failed("bad luck")
    telemetry.close()
    assert seen.series() == [{"operation": "upload", "outcome": "failure", "failure_reason": "internal"}]
    assert seen.sizes() is None
    assert {short(span)["snapshot_id"] for span in seen.spans("upload")} == {"s"}
    for said in (
        "'floppy' is left out: it is not object_store or shared_filesystem",
        "'first'",
        "'weights'",
        "bad luck",
    ):
        assert log.text.count(said) == 1, said
    assert "-1 is not a number of bytes" in log.text


class Refuses:
    """To be shown in any way."""

    def __repr__(self) -> str:
        raise LookupError

    __str__ = __bool__ = __float__ = __repr__  # type: ignore[assignment]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    sizes=st.lists(
        st.one_of(st.integers(), st.floats(), st.none(), st.text(max_size=3), st.booleans(), st.just(10**400)),
        max_size=5,
    ),
    values=st.lists(
        st.one_of(st.text(), st.integers(), st.none(), st.floats(), st.binary(), st.just(object())), min_size=8
    ),
)
def test_nothing_that_is_said_of_an_operation_stops_it(sizes: list[Any], values: list[Any]) -> None:
    fields = [*checkpoints.About.__annotations__][:7]
    before = guard.failures.copy()
    with telemetry_in_memory() as memory, checkpoints.reporting(run_id="r", **_providers(memory)):
        with checkpoints.upload(**dict(zip(fields, values, strict=False))) as upload:  # type: ignore[typeddict-item]
            for size in sizes:
                upload.moved(size)
            upload.failed(values[7])
        known = [size for size in sizes if type(size) in (int, float) and 0 <= size < float("inf") and size < 10**300]
        moved = {names.CHECKPOINT_TRANSFER_SIZE.name} & memory.names()
        assert bool(moved) == bool(known and len(known) == len(sizes))
        if moved:
            assert memory.histogram(names.CHECKPOINT_TRANSFER_SIZE.name).sum == pytest.approx(sum(map(float, known)))
        assert memory.histogram(names.CHECKPOINT_OPERATION_DURATION.name).count == 1
    assert guard.failures == before


def _providers(memory: Any) -> dict[str, Any]:
    return {"meter_provider": memory.meter_provider, "tracer_provider": memory.tracer_provider}


# -- without a telemetry, and with one that fails


def test_without_a_telemetry_the_blocks_do_nothing(
    environment: pytest.MonkeyPatch, no_telemetry: None, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("akka_otel_callbacks.common.run.current._was_open", False)
    passed = []
    with suppress(ValueError), checkpoints.publish(), checkpoints.upload() as upload:
        upload.moved(1)
        passed.append("block")
        raise ValueError
    assert passed == ["block"]
    assert log.text == ""


def test_one_that_ends_after_the_telemetry_is_told_of(
    telemetry: Telemetry, seen: Seen, log: pytest.LogCaptureFixture
) -> None:
    with checkpoints.publish():
        telemetry.close()
    assert re.search(r"checkpoint publish \(success, \d+\.\d s\) ended after the run's telemetry and is not", log.text)
    assert seen.series() == []


def test_one_that_ends_after_its_training_is_the_next_telemetry_s(seen: Seen, start: Callable[..., Telemetry]) -> None:
    first = start()
    with checkpoints.publish(), checkpoints.upload():
        first.close()
        second = start()
    second.close()
    assert {series["operation"] for series in seen.series()} == {"publish", "upload"}
    unfinished = [span for span in seen.spans() if names.ATTR_SPAN_UNFINISHED.name in span.attributes]
    assert {short(span)["operation"] for span in unfinished} == {"publish", "upload"}
    assert len(seen.spans()) == 4, "the first telemetry has them up to its end, and the second whole"


def test_the_newest_training_has_them_and_a_given_one_before_it(seen: Seen, start: Callable[..., Telemetry]) -> None:
    first, second, worker = start(run_id="first"), start(run_id="second"), start(None, run_id="worker")
    with checkpoints.stage(), checkpoints.validate():
        pass
    with checkpoints.upload(telemetry=first), checkpoints.catalog_reserve():
        pass
    second.close()
    with checkpoints.publish():
        pass
    first.close()
    with checkpoints.materialize():
        pass
    worker.close()
    run_of = {
        short(point)["operation"]: point.resource[names.ATTR_RUN_ID.name]
        for point in seen.sink.series(names.CHECKPOINT_OPERATION_DURATION)
    }
    assert run_of == {
        "stage": "second",
        "validate": "second",
        "upload": "first",
        "catalog_reserve": "first",
        "publish": "first",
        "materialize": "worker",
    }


def test_a_service_s_telemetry_is_no_run_s(no_telemetry: None, environment: pytest.MonkeyPatch) -> None:
    with telemetry_in_memory() as memory:
        service = Telemetry.start(Identity({names.ATTR_SERVICE_NAME.name: "service"}), None, **_providers(memory))
        with checkpoints.upload():
            pass
        service.close()
        assert memory.names() == set()


def test_a_telemetry_that_fails_costs_the_operation_nothing(
    telemetry: Telemetry, failures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LookupError

    monkeypatch.setattr(telemetry.trace, "begin", fail)
    monkeypatch.setattr(telemetry, "measure", fail)
    done = []
    with checkpoints.upload() as upload:
        upload.moved(1)
        done.append("block")
    assert done == ["block"]
    assert sum(failures.values()) == 2


def test_values_of_one_series_come_in_every_export_and_grow(telemetry: Telemetry, seen: Seen) -> None:
    for count in (1, 2, 3):
        with checkpoints.stage():
            pass
        assert telemetry.flush(5)
        assert seen.durations(operation="stage").count == count  # type: ignore[union-attr]
    telemetry.close()
    assert {point.cumulative for point in seen.sink.series(names.CHECKPOINT_OPERATION_DURATION)} == {True}


def test_as_changes_where_the_collector_wants_those(
    seen: Seen, start: Callable[..., Telemetry], environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    telemetry = start()
    for _ in range(3):
        with checkpoints.stage():
            pass
        assert telemetry.flush(5)
    telemetry.close()
    points = [point for point in seen.sink.series(names.CHECKPOINT_OPERATION_DURATION) if point.histogram]
    assert [point.histogram.count for point in points if point.histogram] == [1, 1, 1]
    assert not any(point.cumulative for point in points)


def test_an_operation_is_exported_soon(telemetry: Telemetry, seen: Seen) -> None:
    with checkpoints.stage():
        pass
    wait_until(lambda: seen.durations(operation="stage") is not None)


def test_a_provider_that_is_handed_in_gets_the_same(no_telemetry: None, start: Callable[..., Telemetry]) -> None:
    with telemetry_in_memory() as memory:
        telemetry = start(**_providers(memory))
        for size in (10, 30):
            with checkpoints.upload(storage_mode=StorageMode.OBJECT_STORE) as upload:
                upload.moved(size)
        telemetry.close()
        sizes = memory.histogram(names.CHECKPOINT_TRANSFER_SIZE.name)
        assert (sizes.count, sizes.sum) == (2, 40)
        assert list(sizes.explicit_bounds) == list(names.CHECKPOINT_TRANSFER_SIZE.buckets)
        assert memory.histogram(names.CHECKPOINT_OPERATION_DURATION.name).count == 2


@pytest.mark.parametrize("error", [None, OSError("gone")])
def test_the_job_has_the_identities_of_what_it_fetched(error: OSError | None, seen: Seen, telemetry: Telemetry) -> None:
    with suppress(OSError), checkpoints.materialize(snapshot_id="f3a8", source_engine_step=7, restore_mode="branch"):
        if error is not None:
            raise error
    with checkpoints.publish(snapshot_id="another"):
        pass
    telemetry.close()
    known = {"snapshot_id": "f3a8", "source_engine_step": 7, "restore_mode": "branch"}
    assert short(seen.job()) == (known if error is None else {})
