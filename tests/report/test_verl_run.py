"""The page of a real verl run: GRPO of six steps with two workers, whose files `verl_run` holds as they were written
(`verl-cpu grpo --workers 2 --steps 6 --logger akka_otel`)."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.report.gpus import placed
from akka_otel_callbacks.report.page import page
from akka_otel_callbacks.report.rules import RULES
from tests.report.recordings import history

FOLDER = Path(__file__).with_name("verl_run")


def by_time(name: str) -> dict[str, float]:
    """A gauge without attributes as its file has it, read without any code of the package."""
    found = {}
    for line in gzip.decompress((FOLDER / "metrics.jsonl.gz").read_bytes()).splitlines():
        for metric in json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
            if metric["name"] == name:
                found |= {point["timeUnixNano"]: point["asDouble"] for point in metric["gauge"]["dataPoints"]}
    return found


@pytest.mark.parametrize("metric", [names.RL_STEP_REWARD, names.RL_STEP_GRAD_NORM, names.RL_STEP_ENTROPY])
def test_a_course_has_the_value_of_each_step(metric: names.Metric) -> None:
    steps, values = by_time(names.RL_STEP_NUMBER.name), by_time(metric.name)
    course = history(FOLDER).course(metric)
    assert dict(zip(course.x, course.y, strict=True)) == {steps[time]: value for time, value in values.items()}
    assert [*course.x] == [1, 2, 3, 4, 5, 6]


def test_the_workers_are_there_and_the_run_is_healthy() -> None:
    run = history(FOLDER)
    assert placed(run) == [f"no GPU that can be read · actor_rollout · rank {rank} · vm" for rank in (0, 1)]
    assert run.about == "verl · GRPO · model"
    assert {rule.name: [*rule.found(run)] for rule in RULES if [*rule.found(run)]} == {}


def test_the_phases_of_a_step_add_up_to_it() -> None:
    made = page([history(FOLDER)], time.time_ns())
    (phases,) = (panel for panel in made["panels"] if panel["name"] == "phases")
    (stack,) = (one for one in phases["charts"][0]["drawn"] if one["form"] == "stack")
    whole = history(FOLDER).course(names.RL_STEP_TIMING, **{names.ATTR_RL_STEP_PHASE.name: names.RlStepPhase.STEP})
    sums = [sum(value or 0 for value in values) for values in zip(*(row["y"] for row in stack["rows"]), strict=True)]
    assert sums == pytest.approx([*whole.y], rel=1e-3)
    rest = next(row["y"] for row in stack["rows"] if row["name"] == "other")
    assert all(value < 0.2 * total for value, total in [*zip(rest, sums, strict=True)][1:]), "no part is missed"
    assert rest[0] > 10, "verl times no part of what it does before its first step"
