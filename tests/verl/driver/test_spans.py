"""Spans of steps, phases and validations by verl's own timers, in verl's real `Tracking`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

from verl.trainer.ppo import ray_trainer
from verl.utils.profiler import marked_timer, performance, simple_timer

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.driver import timers, validation
from akka_otel_callbacks.verl.state import STATE
from tests.support.otlp_sink import OtlpSink
from tests.support.points import SpanRecord
from tests.support.traces import check_trace, named
from tests.verl.driver.test_tracking import SFT, make, sink  # noqa: F401 - the fixture

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PHASE, NUMBER = names.ATTR_RL_STEP_PHASE.name, names.ATTR_SPAN_STEP.name
UNFINISHED, ERROR = names.ATTR_SPAN_UNFINISHED.name, names.ATTR_ERROR_TYPE.name


@pytest.fixture(params=["phase"])
def receiver(request: pytest.FixtureRequest, sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpSink]:  # noqa: F811
    monkeypatch.setenv("AKKA_OTEL_SPANS", request.param)
    monkeypatch.setenv("TRACEPARENT", f"00-{TRACE_ID}-{PARENT_ID}-01")
    timers.install(performance)
    yield sink
    assert not guard.failures
    assert not STATE.timings.listening


def step(number: int, *, fails: bool = False) -> dict[str, Any]:
    """As a trainer's; what it then logs."""
    timing: dict[str, float] = {}
    with marked_timer("step", timing):
        with marked_timer("gen", timing, color="red"), simple_timer("one_rollout", {}):
            time.sleep(0.002)
        for _ in range(2):
            with marked_timer("update_actor", timing):
                time.sleep(0.002)
                if fails:
                    raise LookupError("my secret")
    with marked_timer("testing", timing):
        pass
    return {"training/global_step": number, **{f"timing_s/{name}": value for name, value in timing.items()}}


def seconds(span: SpanRecord) -> float:
    return (span.end_ns - span.start_ns) / 1e9


def test_verl_s_timers_are_spans(receiver: OtlpSink) -> None:
    made = make()
    rows = [step(number) for number in (7, 8)]
    with marked_timer("before", {}):
        pass
    for row in rows:
        made.log(data=row, step=row["training/global_step"])
    made.finish()
    spans = receiver.spans()
    job = check_trace(spans, TRACE_ID, PARENT_ID)
    (found,) = (span for span in named(spans, names.SPAN_RL_STEP.name) if span.attributes == {NUMBER: 7})
    phases = [span for span in spans if span.attributes.get(NUMBER) == 7 and PHASE in span.attributes]
    assert found.parent_span_id == job.span_id
    assert {span.attributes[PHASE] for span in phases} == {"gen", "update_actor", "testing"}


def test_each_step_has_its_own(receiver: OtlpSink) -> None:
    made = make()
    rows = []
    for number in (1, 2):
        rows.append(step(number))
        made.log(data=rows[-1], step=number)
    made.finish()
    spans = receiver.spans()
    check_trace(spans, TRACE_ID, PARENT_ID)
    for row, whole in zip(rows, named(spans, names.SPAN_RL_STEP.name), strict=True):
        assert seconds(whole) == pytest.approx(row["timing_s/step"], abs=1e-3)
        phases = [s for s in spans if PHASE in s.attributes and s.attributes[NUMBER] == whole.attributes[NUMBER]]
        by_name = [(span.attributes[PHASE], span.parent_span_id == whole.span_id) for span in phases]
        assert sorted(by_name) == [("gen", True), ("testing", False), ("update_actor", True), ("update_actor", True)]
        for name in ("gen", "update_actor"):
            total = sum(seconds(span) for span in phases if span.attributes[PHASE] == name)
            assert total == pytest.approx(row[f"timing_s/{name}"], abs=1e-3)


def test_a_step_that_fails_is_marked(receiver: OtlpSink) -> None:
    made = make()
    made.log(data=step(1), step=1)
    try:
        step(2, fails=True)
    except LookupError:
        made.finish(exit_code=1)
    spans = receiver.spans()
    job = check_trace(spans, TRACE_ID, PARENT_ID)
    first, second = named(spans, names.SPAN_RL_STEP.name)
    assert (first.attributes, second.attributes) == ({NUMBER: 1}, {UNFINISHED: True, ERROR: "LookupError"})
    assert job.attributes == {ERROR: "LookupError"}
    failed = [span.name for span in spans if ERROR in span.attributes and PHASE in span.attributes]
    assert failed == [names.SPAN_RL_STEP_PHASE.of("update_actor")]
    assert "secret" not in str(spans)


@pytest.mark.parametrize("receiver", ["job", "step"], indirect=True)
def test_no_finer_than_it_is_asked_for(receiver: OtlpSink, request: pytest.FixtureRequest) -> None:
    made = make()
    made.log(data=step(1), step=1)
    made.finish()
    found = {span.name for span in receiver.spans()}
    assert found == {names.SPAN_JOB.name} | ({names.SPAN_RL_STEP.name} if "step" in request.node.name else set())


def test_a_supervised_step_has_verl_s_update(receiver: OtlpSink) -> None:
    made = make(SFT)
    (backend,) = (made.logger["akka_otel"],)
    backend._spans.logged({"train/loss": 1.0}, 3, 0.5)
    made.finish()
    (span,) = named(receiver.spans(), names.SPAN_SFT_STEP.name)
    assert span.attributes == {NUMBER: 3}
    assert seconds(span) == pytest.approx(0.5, abs=1e-6)


def pauses() -> dict[str, int]:
    """What the run's telemetry says that it does in place of steps."""
    points = current.current().pauses.points()
    return {attributes[names.ATTR_JOB_PAUSE_CAUSE.name]: value for value, attributes in points}


class Fails(Exception): ...


@pytest.mark.parametrize("error", [None, Fails("my secret")])
def test_a_validation_has_its_span(
    error: Exception | None, receiver: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, int]] = []

    def validate(self: Any) -> dict[str, float]:
        time.sleep(0.002)
        seen.append(pauses())
        if error is not None:
            raise error
        return {"val-core/x": 1.0}

    monkeypatch.setattr(ray_trainer.RayPPOTrainer, "_validate", validate)
    validation.install(ray_trainer)
    trainer = ray_trainer.RayPPOTrainer.__new__(ray_trainer.RayPPOTrainer)
    made = make()
    if error is None:
        assert trainer._validate() == {"val-core/x": 1.0}
    else:
        with pytest.raises(Fails):
            trainer._validate()
    assert [*seen, pauses()] == [{"evaluating": 1, "checkpointing": 0}, {"evaluating": 0, "checkpointing": 0}]
    made.finish()
    (span,) = named(receiver.spans(), names.SPAN_EVAL.name)
    check_trace(receiver.spans(), TRACE_ID, PARENT_ID)
    assert seconds(span) >= 0.002
    assert span.attributes == ({} if error is None else {ERROR: "Fails"})


class Loader:
    """As verl's: it can be gone over again and again."""

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.002)
        return iter([1, 2])


class Supervised:
    """As verl's supervised trainers, with whatever the hooks look for in them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.train_dataloader, self.val_dataloader = Loader(), Loader()
        self._error = error
        self.seen: list[tuple[str, dict[str, int]]] = []

    def _get_batch_seqlens(self, data: Any) -> None: ...

    def fit(self) -> None:
        made = make(SFT)
        for number, _ in enumerate(self.train_dataloader, 1):
            made.log(data={"train/loss": 1.0}, step=number)
            self.seen.append(("step", pauses()))
            for _ in self.val_dataloader:
                self.seen.append(("validation", pauses()))
                if self._error is not None:
                    try:
                        raise self._error
                    except Fails:
                        made.finish(exit_code=1)
                        return
            made.log(data={"val/loss": 0.5}, step=number)
        made.finish()


def test_a_supervised_validation_has_its_span_and_its_time(receiver: OtlpSink) -> None:
    trainer = Supervised()
    trainer.fit()
    paused = {"step": {"evaluating": 0, "checkpointing": 0}, "validation": {"evaluating": 1, "checkpointing": 0}}
    assert trainer.seen == [(when, paused[when]) for when in ("step", "validation", "validation") * 2]
    spans = receiver.spans()
    job = check_trace(spans, TRACE_ID, PARENT_ID)
    found = named(spans, names.SPAN_EVAL.name)
    assert [(span.attributes, span.parent_span_id) for span in found] == [({}, job.span_id)] * 2
    assert all(seconds(span) >= 0.002 for span in found)
    timed = receiver.latest(names.SFT_STEP_TIMING, {names.ATTR_SFT_STEP_PHASE: names.SftStepPhase.EVAL})
    assert timed.value == pytest.approx(seconds(found[1]), abs=1e-6)
    assert receiver.latest(names.SFT_STEP_COUNT).value == 2


def test_a_supervised_validation_that_fails_has_its_span(receiver: OtlpSink) -> None:
    Supervised(Fails("my secret")).fit()
    check_trace(receiver.spans(), TRACE_ID, PARENT_ID)
    (span,) = named(receiver.spans(), names.SPAN_EVAL.name)
    assert span.attributes == {ERROR: "Fails"}
    assert STATE.validated is STATE.validation_begun_ns is None


@pytest.mark.parametrize("said", [0.25, float("nan"), -1.0, 1e12, "long"])
def test_a_validation_of_fully_async_is_as_long_as_its_rollouter_says(said: Any, receiver: OtlpSink) -> None:
    made = make()
    time.sleep(0.3)
    made.log(data={"rollouter/validate_time": said, "val-core/x": 1.0}, step=1)
    made.finish()
    check_trace(receiver.spans(), TRACE_ID, PARENT_ID)
    found = [seconds(span) for span in named(receiver.spans(), names.SPAN_EVAL.name)]
    assert found == ([pytest.approx(0.25, abs=1e-6)] if said == 0.25 else [])


class FullyAsynchronous:
    """As verl's trainer, whose validations another process makes. The class is made anew in each process, as by Ray."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.seen: list[dict[str, int]] = []
        self.made = make()

    async def _fit_validate(self, val_before_train: bool = False) -> None:
        self.seen.append(pauses())
        await asyncio.sleep(0.002)
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, Fails("my secret")])
def test_a_validation_that_a_fully_async_trainer_waits_for_has_its_span_where_it_fails(
    error: Exception | None, receiver: OtlpSink
) -> None:
    trainer = type("FullyAsyncTrainer", (FullyAsynchronous,), {})(error)
    with nullcontext() if error is None else pytest.raises(Fails):
        asyncio.run(trainer._fit_validate())
    assert [*trainer.seen, pauses()] == [{"evaluating": 1, "checkpointing": 0}, {"evaluating": 0, "checkpointing": 0}]
    trainer.made.finish()
    found = named(receiver.spans(), names.SPAN_EVAL.name)
    check_trace(receiver.spans(), TRACE_ID, PARENT_ID)
    assert [span.attributes for span in found] == ([] if error is None else [{ERROR: "Fails"}])
    assert all(seconds(span) >= 0.002 for span in found)
