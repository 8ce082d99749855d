"""Alert rules fire when they should, and only then: promtool runs them on the courses of `alert_cases.yaml`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from akka_otel_callbacks.report import findings
from tests.deploy.promtool import REGISTRY, as_test, cases, check, rule_of, run, series_of, written_rules
from tools.deploy.deployment import RULES, rules_path
from tools.deploy.form import Alerts, read
from tools.deploy.notation import Notation
from tools.generate import ROOT
from tools.prometheus import DIALECTS, Dialect

CASES = cases()
FORM = read(RULES, Alerts)
NAMES = [rule.alert for group in FORM.groups for rule in group.rules]
READ_BY_2_42 = ("scrape", "collector")
"""Names with dots need Prometheus 3."""

OF_THE_PAGE = {
    "AkkaDeadGroups": {findings.DEAD_GROUPS},
    "AkkaRewardAtCeiling": {findings.CEILING},
    "AkkaTruncationRising": {findings.TRUNCATED, findings.TRUNCATED_MORE},
    "AkkaEntropyCollapsed": {findings.ENTROPY_NATS, findings.ENTROPY_LEFT},
    "AkkaGraderFailing": {findings.GRADER_FAILURES},
}
"""The page's thresholds for what an alert looks for, too."""
LATER = {"AkkaDeadGroups", "AkkaGraderFailing"}
"""Alerts whose threshold is higher. `alerts.yaml` has the reason beside each."""


@pytest.mark.parametrize("dialect", READ_BY_2_42)
@pytest.mark.parametrize("alert", NAMES)
def test_an_alert_fires_when_it_should_and_only_then(alert: str, dialect: Dialect, tmp_path: Path) -> None:
    notation = Notation(REGISTRY, dialect)
    run(rule_of(alert, dialect), [as_test(case, notation) for case in CASES if case.alert == alert], tmp_path)


@pytest.mark.parametrize("alert", NAMES)
def test_every_alert_is_seen_firing_and_quiet(alert: str) -> None:
    counts = {count > 0 for case in CASES if case.alert == alert for count in case.firing.values()}
    assert counts == {True, False}


def test_every_case_is_of_an_alert() -> None:
    assert {case.alert for case in CASES} == {*NAMES}


def test_an_alert_has_one_name() -> None:
    assert len(NAMES) == len({*NAMES})


@pytest.mark.parametrize("dialect", READ_BY_2_42)
def test_prometheus_takes_the_rules(dialect: Dialect) -> None:
    assert f"{len(NAMES)} rules found" in check("check", "rules", ROOT / rules_path(dialect))


def test_an_alert_names_its_run_and_says_what_to_do(tmp_path: Path) -> None:
    """As Prometheus prints it: values stand where the template has labels."""
    [case] = [case for case in CASES if case.case == "Steps of a second stop after half an hour"]
    notation = Notation(REGISTRY, "scrape")
    run_of_case = {"run.id": "a", "run.attempt": "1", "run.engine": "trl", "run.method": "GRPO"}
    rule = rule_of(case.alert, "scrape")
    expected = {
        "exp_labels": {"severity": "critical", **{notation.label(name): is_ for name, is_ in run_of_case.items()}},
        "exp_annotations": {**rule["annotations"], "summary": "Run a, attempt 1, has stopped making steps."},
    }
    alerts = [{"alertname": case.alert, "eval_time": "46m", "exp_alerts": [expected]}]
    run(rule, [{**series_of(case, notation), "alert_rule_test": alerts}], tmp_path)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_text_prints_only_labels_that_its_query_leaves(dialect: Dialect) -> None:
    """A label that an aggregation takes away would be printed as nothing."""
    for rule in written_rules(dialect):
        kept = {
            label.strip(' "') for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in labels.split(",")
        }
        text = " ".join(rule["annotations"].values())
        printed = {plain or quoted for plain, quoted in re.findall(r'\$labels\.(\w+)|\$labels "([^"]+)"', text)}
        assert printed <= kept, rule["alert"]


@pytest.mark.parametrize(("alert", "of_the_page"), OF_THE_PAGE.items())
def test_an_alert_and_the_page_mean_the_same_by_a_finding(alert: str, of_the_page: set[float]) -> None:
    (expr,) = (rule.expr for group in FORM.groups for rule in group.rules if rule.alert == alert)
    thresholds = {float(number) for number in re.findall(r"(?<!count`) [<>]=? ([\d.]+)", expr)}
    if alert in LATER:
        assert min(thresholds) > max(of_the_page), "who is called is called later than who looks is told"
    else:
        assert thresholds == of_the_page
