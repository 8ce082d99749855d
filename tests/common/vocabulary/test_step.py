"""The steps' declarations against the registry: every metric has its field, every field its metric."""

from __future__ import annotations

from dataclasses import fields

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind
from akka_otel_callbacks.common.vocabulary.step import DISTRIBUTIONS, GAUGES, RLStep, SFTStep, Step

OWN_SOURCES = {names.RL_GRADER_DURATION, names.RL_GRADER_FAILURES, names.RL_GRADER_TOKENS}
"""Measured by the grader itself, call by call, and by no step."""
COUNTED_ON_THE_WAY = {names.RL_ROLLOUT_REWARD_NEGATIVE}
"""Found where a step's rewards are counted."""


@pytest.mark.parametrize(("step_type", "prefix"), [(RLStep, "rl"), (SFTStep, "sft")])
def test_every_metric_of_a_loop_has_exactly_one_field(step_type: type[Step], prefix: str) -> None:
    declared = [source.metric for source in (*GAUGES[step_type], *DISTRIBUTIONS[step_type])] + [step_type.counter]
    of_loop = {
        m for m in names.JOB_METRICS if m.name.startswith(f"{names.RL_STEP_COUNT.name.partition('rl.')[0]}{prefix}.")
    }
    assert len(declared) == len(set(declared))
    assert set(declared) == (of_loop - OWN_SOURCES - COUNTED_ON_THE_WAY) | {names.STEP_MEMORY}


@pytest.mark.parametrize("step_type", [RLStep, SFTStep])
def test_fields_agree_with_the_registry(step_type: type[Step]) -> None:
    for kind, table in ((Kind.GAUGE, GAUGES), (Kind.HISTOGRAM, DISTRIBUTIONS)):
        for source in table[step_type]:
            assert source.metric.kind is kind, source.attribute
            assert source.metric.attributes == ((source.by,) if source.by else ()), source.attribute
    assert step_type.counter.kind is Kind.COUNTER


@pytest.mark.parametrize("step_type", [RLStep, SFTStep])
def test_a_new_step_says_nothing(step_type: type) -> None:
    assert all(getattr(step_type(), declared.name) is None for declared in fields(step_type))
