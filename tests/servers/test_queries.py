"""Every query that this project prints, asked of a real Prometheus and a real VictoriaMetrics that real runs filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.servers import queries
from tests.servers.queries import Query
from tests.servers.replay import SCRAPE_S
from tests.servers.runs import DCGM_PERCENT, HEALTHY_GPU, SICK_THROTTLE
from tests.servers.world import Answer, World
from tools.prometheus import Dialect

GRADER_LABELS = "akka_optimize_training_rl_term", "akka_optimize_training_rl_grader_failure_cause"
RL_COUNTER = "akka_optimize_training_rl_step_count_total"
VARIABLES = {"run": "grpo"}
ON_RAY = "Ray's nodes and vLLM's servers: tests/verl/e2e/test_servers.py"
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
    [counter] = [each for each in answer.replayed if each.labels["__name__"] == RL_COUNTER]
    counts = dict(counter.samples)
    assert {*counts.values()} == {1, 2, 3, 4}
    idle = [at for at in counts if counts[at] == counts.get(at - 15 * SCRAPE_S)]
    assert len(idle) <= len(values) <= len(idle) + (15 if "increase" in answer.expression else 0)


def utilization_of_dcgm(answer: Answer) -> None:
    (sample,) = answer.now
    assert sample.value == DCGM_PERCENT[HEALTHY_GPU]
    assert sample.labels["hw_id"] == HEALTHY_GPU
    assert sample.labels["akka_optimize_training_job_role"] == "trainer"
    assert sample.labels["akka_optimize_training_job_rank"] == "0"


def failures(answer: Answer) -> None:
    """A rate over all the time is what was counted, by term and cause. Causes that did not come have a 0."""
    counted = {
        frozenset(each.labels[name] for name in GRADER_LABELS): each.value
        for each in answer.truth.select("akka_optimize_training_rl_grader_failures_total")
    }
    rated = {frozenset(labels.values()): sum(rates) * SCRAPE_S for labels, rates in answer.course}
    assert rated.keys() == counted.keys()
    assert [*map(bool, rated.values())].count(True) == 1
    assert all((rated[of] > 0) == (value > 0) and rated[of] <= value * 1.3 for of, value in counted.items())


def one_throttle_reason(answer: Answer) -> None:
    assert answer.values == [0, SICK_THROTTLE // 8 % 2]


def first_xid(answer: Answer) -> None:
    [(labels, increases)] = answer.course
    assert labels["akka_optimize_training_run_id"] == "sft"
    assert max(increases) == pytest.approx(1, rel=0.3)


def devices_that_claims_hold(answer: Answer) -> None:
    assert {*answer.values} == {4}
    assert {sample.labels["akka_optimize_training_pool_accelerator"] for sample in answer.now} == {"nvidia-h100-80gb"}


CHECKS: Mapping[str, Callable[[Answer], None]] = {
    "README.md, 1": without_a_step,
    "docs/gpu.md, 1": utilization_of_dcgm,
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
    if query.where in NO_RESULT:
        assert not answer.minutes, "there is a result: take the query out of NO_RESULT"
        return
    assert answer.minutes, f"no result: {answer.expression}"
    if query.where in CHECKS:
        CHECKS[query.where](answer)
    else:
        expected = answer.truth.of(answer.expression)
        assert expected is not None, f"{query.where} is more than one series: CHECKS needs to say what it gives"
        assert answer.values == pytest.approx(expected, rel=1e-9)


def test_every_query_is_marked_as_one() -> None:
    assert [*queries.unmarked()] == []


def test_the_tables_name_queries_that_exist() -> None:
    assert {*NO_RESULT, *CHECKS} <= {query.where for query in ALL}
