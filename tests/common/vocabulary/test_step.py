"""The steps' declarations against the registry: every metric has its field, every field its metric."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Kind
from akka_otel_callbacks.common.vocabulary.step import COUNTS, DISTRIBUTIONS, GAUGES, RLStep, SFTStep, Step

COUNTED_ON_THE_WAY = {names.RL_ROLLOUT_REWARD_NEGATIVE}
"""Found where a step's rewards are counted."""


@pytest.mark.parametrize(("step_type", "prefix"), [(RLStep, "rl"), (SFTStep, "sft")])
def test_every_metric_of_a_loop_has_exactly_one_field(step_type: type[Step], prefix: str) -> None:
    tables = (*GAUGES[step_type], *DISTRIBUTIONS[step_type], *COUNTS[step_type])
    declared = [source.metric for source in tables] + [step_type.counter]
    of_loop = {
        m for m in names.JOB_METRICS if m.name.startswith(f"{names.RL_STEP_COUNT.name.partition('rl.')[0]}{prefix}.")
    }
    assert len(declared) == len(set(declared))
    of_both = {names.STEP_MEMORY, names.JOB_EPOCH}
    assert set(declared) == (of_loop - COUNTED_ON_THE_WAY) | of_both


@pytest.mark.parametrize("step_type", [RLStep, SFTStep])
def test_fields_agree_with_the_registry(step_type: type[Step]) -> None:
    for kind, table in ((Kind.GAUGE, GAUGES), (Kind.HISTOGRAM, DISTRIBUTIONS)):
        for source in table[step_type]:
            assert source.metric.kind is kind, source.attribute
            assert source.metric.attributes == ((source.by,) if source.by else ()), source.attribute
    assert step_type.counter.kind is Kind.COUNTER


def units(annotation: Any) -> Iterator[str]:
    """Those that an annotation names."""
    if get_origin(annotation) is Annotated:
        yield from annotation.__metadata__
    for part in get_args(annotation):
        yield from units(part)


@pytest.mark.parametrize("step_type", [RLStep, SFTStep])
def test_each_fields_type_names_the_unit_that_the_registry_gives_it(step_type: type[Step]) -> None:
    annotations = get_type_hints(step_type, include_extras=True)
    of_metrics = [declared for declared in fields(step_type) if "metric" in declared.metadata]
    assert len(of_metrics) > 10
    for declared in of_metrics:
        assert {*units(annotations[declared.name])} == {declared.metadata["metric"].unit}, declared.name


@pytest.mark.parametrize("step_type", [RLStep, SFTStep])
def test_a_new_step_says_nothing(step_type: type) -> None:
    assert all(getattr(step_type(), declared.name) is None for declared in fields(step_type))
