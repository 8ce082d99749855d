"""Every query of every panel and variable, asked of real servers that real runs filled."""

from __future__ import annotations

import pytest

from tests.servers import queries
from tests.servers.ask import check
from tests.servers.dashboards import CHECKS, NO_RESULT
from tests.servers.expected import WINDOW_S, without_dialect
from tests.servers.queries import Query
from tests.servers.world import World

ALL = [query for query in queries.of_deploy() if "/grafana/" in query.where]
RUN_OF = {"sft.json": "sft", "gpus.json": "grpo|sft"}


@pytest.mark.parametrize("query", ALL, ids=lambda query: query.where)
def test_a_panel_shows_what_the_runs_had(world: World, query: Query) -> None:
    what = without_dialect(query.where)
    variables = {
        "run": RUN_OF.get(what.partition(":")[0], "grpo"),
        "attempt": "1",
        "project": "triage|commits",
        "__rate_interval": f"{WINDOW_S:.0f}s",
    }
    check(world.ask(query, query.dialects[0], variables), CHECKS.get(what), NO_RESULT.get(what))


def test_the_tables_name_panels_that_exist() -> None:
    assert {*NO_RESULT, *CHECKS} <= {without_dialect(query.where) for query in ALL}
