"""Dashboards of Grafana: their queries are PromQL about what the registry has, and their parts fit together.

No Grafana runs here. Its own types hold the form, and promtool the queries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.promtool import REGISTRY, check
from tools.deploy.deployment import DASHBOARDS, dashboard_path
from tools.deploy.form import DashboardForm, read, spelled_out
from tools.deploy.notation import Notation
from tools.deploy.queries import queries
from tools.deploy.units import grafana_unit
from tools.generate import ROOT
from tools.model import Metric
from tools.prometheus import DIALECTS, Dialect, all_series, label_name

FORMS = {path.stem: read(path, DashboardForm) for path in DASHBOARDS}
EACH = [(dialect, name) for dialect in DIALECTS for name in FORMS]
VARIABLE = re.compile(r"\$([a-z_]\w*)")
MACROS = {"__rate_interval"}
VALUES = {"$__rate_interval": "5m", "$project": ".*", "$attempt": ".*", "$run": "a"}
OF_OTHERS = ("DCGM_", "ray_", "ALERTS")
NOT_SHOWN = {
    "checkpoint.pending": "of a publisher of checkpoints, beside the trainings",
    "checkpoint.transfer.size": "of a publisher of checkpoints, beside the trainings",
    "telemetry.overflow": "an alert tells of it",
}


def written(dialect: Dialect, name: str) -> dict[str, Any]:
    return json.loads((ROOT / dashboard_path(name, dialect)).read_text(encoding="utf-8"))


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        yield from (target["expr"] for target in panel["targets"])


def chosen(expr: str) -> str:
    """With values in the place of Grafana's variables."""
    for variable, value in VALUES.items():
        expr = expr.replace(variable, value)
    return expr


@pytest.mark.parametrize(("dialect", "name"), EACH)
def test_grafana_s_types_read_what_is_written(dialect: Dialect, name: str) -> None:
    dashboard = written(dialect, name)
    assert json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder)) == dashboard


@pytest.mark.parametrize("dialect", ["scrape", "collector"])
def test_every_query_is_promql(dialect: Dialect, tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": chosen(query.expr)}
        for number, query in enumerate(queries(ROOT))
        if query.dialect == dialect
    ]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in check("check", "rules", path)


@pytest.mark.parametrize(("dialect", "name"), EACH)
def test_every_name_is_the_registry_s(dialect: Dialect, name: str) -> None:
    series = {
        one for metric in REGISTRY.metrics for one in (*all_series(metric, dialect), all_series(metric, dialect)[0])
    }
    native = {series.removesuffix("_bucket") for series in series}
    for expr in expressions(written(dialect, name)):
        labels = {
            label_name(attribute, "scrape" if "ray_vllm" in expr else dialect) for attribute in REGISTRY.attributes
        }
        for word in re.findall(r"\b(?:akka[._]optimize|hw)[._][\w.]+", expr):
            assert word in series | native | labels, expr


@pytest.mark.parametrize(("dialect", "name"), EACH)
def test_parts_have_names_of_their_own_and_no_panel_is_empty(dialect: Dialect, name: str) -> None:
    dashboard = written(dialect, name)
    ids = [panel["id"] for panel in dashboard["panels"]]
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len({*ids}) == len(ids)
    assert len({*titles}) == len(titles)
    for panel in panels(dashboard):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters
        assert len({*letters}) == len(letters)
        assert panel["title"]
        assert panel["description"]


@pytest.mark.parametrize(("dialect", "name"), EACH)
def test_panels_lie_side_by_side(dialect: Dialect, name: str) -> None:
    places = [panel["gridPos"] for panel in written(dialect, name)["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)


@pytest.mark.parametrize(("dialect", "name"), EACH)
def test_every_variable_is_defined_and_used(dialect: Dialect, name: str) -> None:
    dashboard = written(dialect, name)
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    read_by = {word for expr in expressions(dashboard) for word in VARIABLE.findall(expr)}
    read_by |= {word for found in variables.values() for word in VARIABLE.findall(str(found["query"]))}
    assert read_by - MACROS == variables.keys() - {"datasource"}


@pytest.mark.parametrize("name", FORMS)
def test_a_choice_of_several_is_matched_as_one(name: str) -> None:
    """`=` with several values, or with all of them, finds nothing."""
    several = {variable.name for variable in FORMS[name].variables if variable.several}
    for expr in expressions(written("scrape", name)):
        for how, variable in re.findall(r'(=~|!=|=)"\$(\w+)"', expr):
            assert (how == "=~") == (variable in several), expr


@pytest.mark.parametrize("name", FORMS)
def test_links_lead_to_dashboards_that_take_the_choice(name: str) -> None:
    taken = {form.uid: {variable.name for variable in form.variables} for form in FORMS.values()}
    form = FORMS[name]
    assert {*form.leads_to} <= taken.keys() - {form.uid}
    for panel in panels(written("scrape", name)):
        for override in panel["fieldConfig"]["overrides"]:
            for link in (link for given in override["properties"] if given["id"] == "links" for link in given["value"]):
                uid, choice = re.fullmatch(r"/d/([\w-]+)\?(.+)", link["url"]).groups()
                columns = [*panel["transformations"][1]["options"]["renameByName"].values()]
                assert {*re.findall(r"var-(\w+)=", choice)} <= taken[uid]
                assert {*re.findall(r'fields\["([^"]+)"\]', choice)} <= {*columns}
                assert override["matcher"]["options"] in columns


def test_the_way_leads_from_all_runs_to_a_run_to_its_gpus() -> None:
    by_uid = {form.uid: form for form in FORMS.values()}
    tables = {uid for row in FORMS["fleet"].rows for panel in row.panels for uid in panel.links.values()}
    assert tables == {"akka-rl-run", "akka-sft-run"}
    assert all("akka-gpus" in by_uid[uid].leads_to for uid in tables)


@pytest.mark.parametrize("name", FORMS)
def test_a_panel_s_unit_is_its_metric_s_where_it_shows_the_metric_itself(name: str) -> None:
    form, notation = FORMS[name], Notation(REGISTRY, "scrape")
    written_panels = {panel["title"]: panel for panel in panels(written("scrape", name))}
    for panel in (panel for row in form.rows for panel in row.panels if panel.kind not in ("table", "heatmap")):
        for query in panel.queries:
            bare = re.fullmatch(r"`([\w.]+)`(\{[^}]*\})?", spelled_out(query.expr, form.abbreviations))
            if bare:
                unit = written_panels[panel.title]["fieldConfig"]["defaults"]["unit"]
                assert unit == grafana_unit(notation.metric(bare[1])), panel.title


@pytest.mark.parametrize("metric", REGISTRY.metrics, ids=lambda metric: metric.name)
def test_every_metric_is_shown_or_has_a_reason_not_to_be(metric: Metric) -> None:
    names = {*all_series(metric, "scrape")}
    shown = any(names & {*re.findall(r"\w+", expr)} for name in FORMS for expr in expressions(written("scrape", name)))
    assert shown != (metric.name.removeprefix("akka.optimize.training.") in NOT_SHOWN)


def test_metrics_of_others_are_those_that_their_pages_name() -> None:
    known = {"DCGM_FI_DEV_GPU_UTIL", "ALERTS", "ray_node_gpus_utilization", "ray_vllm_kv_cache_usage_perc"}
    known |= {"ray_vllm_num_requests_running", "ray_vllm_num_requests_waiting"}
    found = {word for name in FORMS for expr in expressions(written("utf8", name)) for word in re.findall(r"\w+", expr)}
    assert {word for word in found if word.startswith(OF_OTHERS)} == known
