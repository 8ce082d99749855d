"""Every alert rule, on the runs that other tests ask about: one is healthy, and one goes wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import pytest

from tests.servers import queries
from tests.servers.dashboards import FIRE_AT_ONCE
from tests.servers.expected import without_dialect
from tests.servers.queries import SERIES, Query
from tests.servers.world import World

ALL = [query for query in queries.of_deploy() if "/alerts/" in query.where]
RUN = "akka_optimize_training_run_id"
HOLDS_FOR: Mapping[str, Sequence[str]] = {
    "AkkaRunStalled": ("grpo", "sft"),
    "AkkaFirstStepOverdue": ("grpo", "sft"),
    "AkkaLossNotFinite": ("sft",),
    "AkkaXidOfTheHardware": ("sft",),
    "AkkaGpuLost": ("sft",),
    "AkkaGpuRepairPending": ("sft",),
    "AkkaGpuThrottledByHeat": ("sft",),
}
"""The runs for which a rule's condition holds at a time of their replay, in which steps of seconds take hours."""
MAY_HOLD_FOR = {
    "AkkaGraderFailing": "the rule fails by the length of what a tiny model writes",
    "AkkaTruncationRising": "it depends on what a tiny model writes",
    "AkkaRunReportsNothing": "the service may begin before the runs of its projects",
}
"""Rules whose condition nobody can foresee here. The runs are too short for those that want more than ten steps."""
NO_SERIES = {"akka_optimize_training_telemetry_overflow_total": "no attribute has too many values"}
"""Series that no run here has, and why."""


@pytest.mark.parametrize("query", ALL, ids=lambda query: query.where)
def test_a_rule_holds_for_the_runs_that_it_is_about(world: World, query: Query) -> None:
    alert = without_dialect(query.where)
    answer = world.ask(query, query.dialects[0], {})
    found = {labels.get(RUN, "") for labels, _ in answer.course}
    if alert in MAY_HOLD_FOR:
        assert found <= {"grpo", ""}
    else:
        assert found == {*HOLDS_FOR.get(alert, ())}


@pytest.mark.parametrize("query", ALL, ids=lambda query: query.where)
def test_a_rule_reads_series_that_are_there(world: World, query: Query) -> None:
    """A rule about a series that nobody has would never fire."""
    labels = {label for course in world.given(query.dialects[0]) for label in course.labels}
    read = {*SERIES.findall(query.expression)} - labels
    assert read
    assert read - world.names(query.dialects[0]) - {*NO_SERIES} == set()


def test_no_alert_fires_on_a_healthy_run_and_some_do_on_one_that_goes_wrong(world: World) -> None:
    """In the Prometheus that scraped the runs while they ran, with the rules as they are shipped."""
    firing = defaultdict(set)
    for course in world.given("scrape"):
        if course.labels["__name__"] == "ALERTS" and course.labels["alertstate"] == "firing":
            firing[course.labels.get(RUN, "")].add(course.labels["alertname"])
    assert firing.keys() == {"sft"}
    assert firing["sft"] >= FIRE_AT_ONCE


def test_the_tables_name_rules_that_exist() -> None:
    assert {*HOLDS_FOR, *MAY_HOLD_FOR} <= {without_dialect(query.where) for query in ALL}
