"""Every query that this project prints, asked of a real Prometheus and a real VictoriaMetrics that real runs filled."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.servers import queries
from tests.servers.ask import check
from tests.servers.dashboards import ON_RAY
from tests.servers.expected import Check
from tests.servers.gpus import DCGM_PERCENT, HEALTHY_GPU, SICK_THROTTLE
from tests.servers.queries import Query
from tests.servers.replay import SCRAPE_S
from tests.servers.world import Answer, World
from tools.prometheus import Dialect

EDGES = 4
"""Minutes at the edges of pauses, which the two servers count differently."""
VARIABLES = {"run": "grpo"}
NO_RESULT = {
    "docs/verl.md, 1": ON_RAY,
    "Find the GPUs a run uses": ON_RAY,
    "Rollout engine": ON_RAY,
    "Rollout engine, awake": ON_RAY,
}
"""Queries without a result here, and why."""


def without_a_step(answer: Answer) -> None:
    """The run's steps take hours here: all but the 15 minutes after each step are without one. `increase` says so as
    soon as there are two samples, where a difference needs one of before the window."""
    [(labels, values)] = answer.course
    assert labels["akka_optimize_training_run_id"] == "grpo"
    assert {*values} == {0}
    [counts] = _samples(answer, "akka_optimize_training_rl_step_count_total")
    assert {*counts.values()} == {1, 2, 3, 4}
    idle = {at for at in counts if counts[at] == counts.get(at - 15 * SCRAPE_S)}
    if "paused" in answer.expression:
        paused = _samples(answer, "akka_optimize_training_job_steps_paused")
        busy = {at for each in paused for at, value in each.items() if value}
        idle = {at for at in idle if not any(at - 15 * SCRAPE_S <= moment <= at for moment in busy)}
    assert idle
    assert len(idle) <= len(values) <= len(idle) + (15 if "increase" in answer.expression else EDGES)


def _samples(answer: Answer, series: str) -> list[dict[float, float]]:
    """What the server was given of the run, by time."""
    return [
        dict(each.samples)
        for each in answer.replayed
        if each.labels["__name__"] == series and each.labels["akka_optimize_training_run_id"] == "grpo"
    ]


def utilization_of_dcgm(answer: Answer) -> None:
    (sample,) = answer.now
    assert sample.value == DCGM_PERCENT[HEALTHY_GPU]
    assert sample.labels["hw_id"] == HEALTHY_GPU
    assert sample.labels["akka_optimize_training_job_role"] == "trainer"
    assert sample.labels["akka_optimize_training_job_rank"] == "0"


def driver_beside_power(answer: Answer) -> None:
    watts = answer.truth.select("hw_power_watts")
    assert answer.values == sorted(figure.value for figure in watts)
    versions = {figure.labels["hw_driver_version"] for figure in answer.truth.select("hw_status")}
    assert {sample.labels["hw_driver_version"] for sample in answer.now} == versions


def failures(answer: Answer) -> None:
    """A rate over all the time is what was counted. What the first scrape had already is no increase."""
    increases = 0.0
    for labels, rates in answer.course:
        (counted,) = (
            figure
            for figure in answer.truth.select("akka_optimize_training_rl_grader_failures_total")
            if labels.items() <= figure.labels.items()
        )
        assert sum(rates) * SCRAPE_S <= counted.value * 1.3
        increases += sum(rates)
    assert increases > 0


def one_throttle_reason(answer: Answer) -> None:
    assert answer.values == [0, SICK_THROTTLE // 8 % 2]


def first_xid(answer: Answer) -> None:
    [(labels, increases)] = answer.course
    assert labels["akka_optimize_training_run_id"] == "sft"
    assert max(increases) == pytest.approx(1, rel=0.3)


def devices_that_claims_hold(answer: Answer) -> None:
    assert {*answer.values} == {4}
    assert {sample.labels["akka_optimize_training_pool_accelerator"] for sample in answer.now} == {"nvidia-h100-80gb"}


CHECKS: Mapping[str, Check] = {
    "README.md, 1": without_a_step,
    "docs/gpu.md, 1": utilization_of_dcgm,
    "docs/gpu.md, 2": driver_beside_power,
    "docs/gpu.md, 3": first_xid,
    "docs/graders.md, 1": failures,
    "Alert on a stalled run": without_a_step,
    "GPU health, one throttle reason": one_throttle_reason,
    "GPU health, the first XID": first_xid,
    "Capacity over time": devices_that_claims_hold,
}
"""What is to be said of an answer that is more than a series, or one aggregation of a series."""
ALL = [*queries.of_pages(), *queries.of_reference_documents()]


@pytest.mark.parametrize(
    ("query", "dialect"),
    [pytest.param(query, dialect, id=f"{query.where}, {dialect}") for query in ALL for dialect in query.dialects],
)
def test_a_query_gives_what_the_runs_had(world: World, query: Query, dialect: Dialect) -> None:
    answer = world.ask(query, dialect, VARIABLES)
    check(answer, CHECKS.get(query.where), NO_RESULT.get(query.where))


def test_every_query_is_marked_as_one() -> None:
    assert [*queries.unmarked()] == []


def test_the_tables_name_queries_that_exist() -> None:
    assert {*NO_RESULT, *CHECKS} <= {query.where for query in ALL}
