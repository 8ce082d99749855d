"""The pages name what `deploy/` has, and print the queries that it has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.deploy.promtool import REGISTRY, as_test, cases, rule_of, run, written_rules
from tools.deploy.deployment import DASHBOARDS
from tools.deploy.notation import Notation
from tools.generate import ROOT

PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_lists_every_alert_and_every_dashboard() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| `Akka")]
    listed = [name for row in rows for name in re.findall(r"`(Akka\w+)`", row)]
    assert listed == [rule["alert"] for rule in written_rules("scrape")]
    files = re.findall(r"^\| `(\w+)\.json`", PAGE, re.MULTILINE)
    assert sorted(files) == [path.stem for path in DASHBOARDS]


def test_the_readme_s_query_finds_stalled_runs_as_the_alert_does(tmp_path: Path) -> None:
    """On runs with a step a minute or faster, and none of the others."""
    [query] = [code for code in re.findall(r"```promql\n(.*?)```", README, re.DOTALL) if "step_count" in code]
    names = {
        "Steps of a second stop after half an hour",
        "Steps of four minutes go on",
        "The run has ended",
        "The run is resumed, and its count begins anew",
        "A checkpoint takes forty minutes, and steps go on after it",
        "After an evaluation no step comes",
    }
    tested = [as_test(case, Notation(REGISTRY, "scrape")) for case in cases() if case.case in names]
    assert len(tested) == len(names)
    run({**rule_of("AkkaRunStalled", "scrape"), "expr": query}, tested, tmp_path)


def test_the_readme_counts_the_alerts() -> None:
    assert int(re.search(r"with (\d+) other alerts", README)[1]) == len(written_rules("scrape")) - 1
