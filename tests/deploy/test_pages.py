"""The pages name what `deploy/` has, and print the queries that it has."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import yaml

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


def test_the_page_names_the_panels_with_a_subquery() -> None:
    panels = [
        panel for path in (ROOT / "deploy/grafana/scrape").iterdir() for panel in json.loads(path.read_text())["panels"]
    ]
    [named] = re.findall(r"shorten `(.+)` in (.+)\.", PAGE)
    assert {panel["title"] for panel in panels if named[0] in json.dumps(panel)} == {*re.findall("“(.+?)”", named[1])}


def test_the_operator_gets_the_rules_as_they_are(tmp_path: Path) -> None:
    """What the page's command hands to `kubectl`."""
    [command] = re.findall(r"```bash\n(\{ echo .*?)```", PAGE, re.DOTALL)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nexec cat\n")
    kubectl.chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    handed = subprocess.run(["bash", "-c", command], cwd=ROOT, env=path, capture_output=True, text=True, check=True)
    made = yaml.safe_load(handed.stdout)
    assert made["kind"] == "PrometheusRule"
    assert [rule for group in made["spec"]["groups"] for rule in group["rules"]] == written_rules("scrape")


def test_a_configmap_has_room_for_the_dashboards_of_a_folder() -> None:
    """Kubernetes takes a MiB of data, names included."""
    for folder in (ROOT / "deploy/grafana").iterdir():
        assert sum(path.stat().st_size + len(path.name) for path in folder.iterdir()) < 1 << 20


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
