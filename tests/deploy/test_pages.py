"""The pages name what `deploy/` has, and print the queries that it has."""

from __future__ import annotations

import re

from tests.deploy.promtool import written_rules
from tools.deploy.deployment import DASHBOARDS
from tools.generate import ROOT

PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_lists_every_alert_and_every_dashboard() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| `Akka")]
    listed = [name for row in rows for name in re.findall(r"`(Akka\w+)`", row)]
    assert listed == [rule["alert"] for rule in written_rules("scrape")]
    files = re.findall(r"^\| `(\w+)\.json`", PAGE, re.MULTILINE)
    assert sorted(files) == [path.stem for path in DASHBOARDS]


def test_the_readme_s_query_of_stalled_runs_is_the_alert_s_first_window() -> None:
    [query] = [code for code in re.findall(r"```promql\n(.*?)```", README, re.DOTALL) if "step_count" in code]
    [stalled] = [rule["expr"] for rule in written_rules("scrape") if rule["alert"] == "AkkaRunStalled"]
    assert " ".join(query.split()) in " ".join(stalled.split())


def test_the_readme_counts_the_alerts() -> None:
    assert int(re.search(r"with (\d+) other alerts", README)[1]) == len(written_rules("scrape")) - 1
