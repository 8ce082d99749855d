"""The spans of real trainings at a real receiver: one trace, the right parents, and the engine's own times."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import RlStepPhase, SftStepPhase
from tests.support.points import SpanRecord
from tests.support.traces import check_trace, named
from tests.trl.runs import Run, enclosed, exported_run
from tests.trl.trainings import online, sft

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STARTED = {"TRACEPARENT": f"00-{TRACE}-{PARENT}-01"}
BUSY = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
STAGE = names.SPAN_CHECKPOINT_OPERATION.of("stage")
NUMBER, UNFINISHED, ERROR = names.ATTR_SPAN_STEP.name, names.ATTR_SPAN_UNFINISHED.name, names.ATTR_ERROR_TYPE.name
LEVELS = {"": 0, "job": 0, "STEP": 1, " phase ": 2, "everything": 0}


def trained(kind: str, model: str, level: str, **more: Any) -> Run:
    """With exports at the end only: a step's spans are asked for there, too."""
    variables = {**STARTED, "AKKA_OTEL_SPANS": level, **more.pop("variables", {})}
    return exported_run(
        lambda callbacks: (
            sft(model, callbacks, **BUSY)
            if kind == "SFT"
            else online(kind, model, callbacks, num_iterations=2, beta=0.1, **BUSY)
        ),
        variables=variables,
        at_each_event=False,
        **more,
    )


def seconds(span: SpanRecord) -> float:
    return (span.end_ns - span.start_ns) / 1e9


@pytest.fixture(scope="module", params=["SFT", "GRPO"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(kind: str, tiny_model: str) -> Run:
    return trained(kind, tiny_model, "phase")


@pytest.mark.parametrize("level", LEVELS)
def test_as_fine_as_it_is_asked_for(level: str, kind: str, tiny_model: str, caplog: pytest.LogCaptureFixture) -> None:
    spans = trained(kind, tiny_model, level).sink.spans()
    check_trace(spans, TRACE, PARENT)
    loop = names.SPAN_SFT_STEP if kind == "SFT" else names.SPAN_RL_STEP
    found = Counter(span.name for span in spans)
    evaluations = found[names.SPAN_EVAL.name]  # older versions of TRL evaluate once
    assert evaluations in (1, 2)
    always = {names.SPAN_JOB.name: 1, names.SPAN_EVAL.name: evaluations, STAGE: 2}
    assert found.items() >= always.items()
    assert found[loop.name] == (3 if LEVELS[level] else 0)
    assert (sum(found.values()) > sum(always.values()) + found[loop.name]) == (LEVELS[level] == 2)
    assert ("AKKA_OTEL_SPANS='everything' is not one of job, step, phase" in caplog.text) == (level == "everything")


def test_all_of_it_is_one_trace(run: Run) -> None:
    job = check_trace(run.sink.spans(), TRACE, PARENT)
    assert job.attributes == {}
    assert not [span for span in run.sink.spans() if {UNFINISHED, ERROR} & span.attributes.keys()]


def test_a_step_s_span_is_as_long_as_the_step(kind: str, run: Run) -> None:
    steps = named(run.sink.spans(), (names.SPAN_SFT_STEP if kind == "SFT" else names.SPAN_RL_STEP).name)
    assert [span.attributes for span in steps] == [{NUMBER: 1}, {NUMBER: 2}, {NUMBER: 3}]
    for number, span in enumerate(steps, start=1):
        least, most = enclosed(run.before, run.behind, "begin", "end", number)
        assert least - 1e-6 <= seconds(span) <= most + 1e-6
    duration = run.histogram(names.SFT_STEP_DURATION if kind == "SFT" else names.RL_STEP_DURATION)
    assert math.isclose(sum(map(seconds, steps)), duration.sum, abs_tol=1e-5)


def test_phases_are_as_long_as_the_engine_s_own_times(kind: str, run: Run) -> None:
    spans, by_phase = run.sink.spans(), {}
    family, attribute, timing = (
        (names.SPAN_SFT_STEP_PHASE, names.ATTR_SFT_STEP_PHASE, names.SFT_STEP_TIMING)
        if kind == "SFT"
        else (names.SPAN_RL_STEP_PHASE, names.ATTR_RL_STEP_PHASE, names.RL_STEP_TIMING)
    )
    for span in spans:
        if attribute.name in span.attributes:
            assert span.name == family.of(span.attributes[attribute.name])
            by_phase.setdefault(span.attributes[attribute.name], []).append(span)
    counts = {phase: len(found) for phase, found in by_phase.items()}
    if kind == "SFT":
        assert counts == dict.fromkeys((SftStepPhase.INPUT, SftStepPhase.FORWARD_BACKWARD, SftStepPhase.OPTIMIZER), 3)
    else:
        assert set(counts) == {RlStepPhase.GEN, RlStepPhase.REWARD}, "the update is no span of time"
        assert counts[RlStepPhase.GEN] == counts[RlStepPhase.REWARD] == 2, "the second step reuses the first's"
    for phase, found in by_phase.items():
        of_last = [span for span in found if span.attributes[NUMBER] == 3]
        assert math.isclose(sum(map(seconds, of_last)), run.shown(timing, None, phase), abs_tol=1e-5), phase
    by_id = {span.span_id: span.name for span in spans}
    for phase, found in by_phase.items():
        expected = names.SPAN_JOB.name if phase == SftStepPhase.INPUT else family.name
        assert {by_id[span.parent_span_id] for span in found} == {expected}


def test_a_step_that_an_epoch_s_end_cuts_in_two_is_one_span(tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: sft(
            tiny_model,
            callbacks,
            max_steps=4,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=3,
            eval_strategy="epoch",
        ),
        variables={**STARTED, "AKKA_OTEL_SPANS": "phase"},
        at_each_event=False,
    )
    check_trace(run.sink.spans(), TRACE, PARENT)
    steps = named(run.sink.spans(), names.SPAN_SFT_STEP.name)
    assert [span.attributes[NUMBER] for span in steps] == run_steps(run)
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(steps))


def run_steps(run: Run) -> list[int]:
    return sorted(step for event, step in run.behind.at if event == "end")


# -- ends


class Fails(TrainerCallback):
    def __init__(self, event: str, error: BaseException) -> None:
        self._error = error
        setattr(self, f"on_{event}", self._fail)

    def _fail(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            raise self._error


@pytest.mark.parametrize("error", [ValueError("my secret"), KeyboardInterrupt("my secret")])
def test_a_training_that_ends_in_a_step_leaves_its_span(error: BaseException, kind: str, tiny_model: str) -> None:
    make = sft if kind == "SFT" else (lambda *args, **more: online("GRPO", *args, **more))
    run = exported_run(
        lambda callbacks: make(tiny_model, [*callbacks, Fails("pre_optimizer_step", error)], **BUSY),
        variables={**STARTED, "AKKA_OTEL_SPANS": "phase", "OTEL_LOGS_EXPORTER": "otlp"},
        at_each_event=False,
        expected=(type(error),),
    )
    spans = run.sink.spans()
    job = check_trace(spans, TRACE, PARENT)
    first, second = named(spans, (names.SPAN_SFT_STEP if kind == "SFT" else names.SPAN_RL_STEP).name)
    assert first.attributes == {NUMBER: 1}
    assert second.attributes == {UNFINISHED: True, ERROR: type(error).__name__}
    assert job.attributes == {ERROR: type(error).__name__}
    assert (job.status, second.status, first.status) == (2, 2, 0)
    told = [line for line in run.sink.logs() if line.event == names.EVENT_JOB_FAILED.name]
    assert [(line.trace_id, line.span_id, line.attributes) for line in told] == [
        (TRACE, job.span_id, {ERROR: type(error).__name__})
    ]
    assert "secret" not in str(spans) + str(run.sink.logs())


def test_an_evaluation_that_fails_has_a_span(tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: sft(
            tiny_model,
            [*callbacks, Fails("prediction_step", LookupError("my secret"))],
            eval_strategy="steps",
            eval_steps=1,
        ),
        variables=STARTED,
        at_each_event=False,
        expected=(LookupError,),
    )
    job = check_trace(run.sink.spans(), TRACE, PARENT)
    (evaluation,) = named(run.sink.spans(), names.SPAN_EVAL.name)
    assert evaluation.attributes == {ERROR: "LookupError"}
    assert evaluation.status == job.status == 2
    assert 0 < seconds(evaluation) < seconds(job)


# -- what is not wanted


def test_a_run_that_is_not_sampled_has_no_span(kind: str, tiny_model: str) -> None:
    run = trained(kind, tiny_model, "phase", variables={"TRACEPARENT": f"00-{TRACE}-{PARENT}-00"})
    assert run.sink.spans() == []
    assert run.shown(names.SFT_STEP_COUNT if kind == "SFT" else names.RL_STEP_COUNT) == 3


def test_spans_alone(kind: str, tiny_model: str) -> None:
    run = trained(kind, tiny_model, "step", variables={"OTEL_METRICS_EXPORTER": "none"})
    check_trace(run.sink.spans(), TRACE, PARENT)
    assert run.sink.metrics() == []
    assert len(named(run.sink.spans(), (names.SPAN_SFT_STEP if kind == "SFT" else names.SPAN_RL_STEP).name)) == 3
