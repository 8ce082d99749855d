"""Calls as a step's figures, and what the counters make of several steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.figures import set_graders
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep

CAUSES = names.ATTR_RL_GRADER_FAILURE_CAUSE.values
calls = st.lists(
    st.builds(
        Call,
        st.sampled_from(["rule:a", "model:b", "c"]),
        st.floats(0, 100),
        st.integers(1, 5),
        st.none() | st.sampled_from(CAUSES),
        st.none() | st.integers(0, 1000),
        st.none() | st.integers(0, 1000),
        st.booleans(),
    ),
    max_size=12,
)


def counted(recorder: Recorder, metric: Any) -> dict[tuple[Any, ...], float]:
    return {tuple(attributes.values()): value for value, attributes in recorder.snapshot().counters[metric]}


@given(st.lists(calls, max_size=4))
def test_counters_add_up_over_steps_and_histograms_have_every_rollout(steps: list[list[Call]]) -> None:
    records: list[Any] = []
    recorder = Recorder(RLStep, records.append)
    failures: Counter[Any] = Counter()
    tokens: Counter[Any] = Counter()
    rows: Counter[str] = Counter()
    for number, made in enumerate(steps, 1):
        step = RLStep(number=number)
        set_graders(step, made)
        recorder.record(step)
        recorder.record(step)  # twice in a row is once
        for call in made:
            rows[call.term] += call.rows
            for cause in CAUSES if call.may_fail else ():
                failures[call.term, cause] += 0
            if call.cause:
                failures[call.term, call.cause] += call.rows
            for kind, count in (("input", call.input_tokens), ("output", call.output_tokens)):
                if count is not None:
                    tokens[call.term, kind] += count
    assert counted(recorder, names.RL_GRADER_FAILURES) == dict(failures)  # a Counter takes a missing one for 0
    assert counted(recorder, names.RL_GRADER_TOKENS) == dict(tokens)
    recorded: Counter[str] = Counter()
    for record in records:
        for metric, attributes, values in record.distributions:
            assert metric is names.RL_GRADER_DURATION
            recorded[attributes[names.ATTR_RL_TERM.name]] += len(values)
    assert recorded == rows


def test_points_carry_the_registrys_attributes() -> None:
    step, recorder = RLStep(number=1), Recorder(RLStep)
    set_graders(step, [Call("t", 1.0, 2, "timeout", 5, None)])
    recorder.record(step)
    counters = recorder.snapshot().counters
    assert counters[names.RL_GRADER_FAILURES] == (
        (2, {names.ATTR_RL_TERM.name: "t", names.ATTR_RL_GRADER_FAILURE_CAUSE.name: "timeout"}),
    )
    assert counters[names.RL_GRADER_TOKENS] == (
        (5, {names.ATTR_RL_TERM.name: "t", names.ATTR_RL_GRADER_TOKEN_TYPE.name: "input"}),
    )


def test_a_step_without_calls_has_none_of_them() -> None:
    step = RLStep(number=1)
    set_graders(step, [])
    assert (step.grader_duration, step.grader_failures, step.grader_tokens) == (None, None, None)
