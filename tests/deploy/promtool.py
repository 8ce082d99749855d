"""Runs Prometheus' own tool on rules and on what they should do."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.programs import program
from tools.deploy.deployment import rules_path
from tools.deploy.form import spelled_out
from tools.deploy.notation import Notation
from tools.generate import ROOT
from tools.prometheus import Dialect
from tools.registry import load

CASES = Path(__file__).parent / "alert_cases.yaml"
REGISTRY = load(ROOT / "registry")


@dataclass(frozen=True)
class Case:
    """One of `alert_cases.yaml`.

    Attributes:
        series: values in promtool's notation, by selector in the registry's names.
        firing: how many alerts fire, by the time since the first value.
    """

    alert: str
    case: str
    series: dict[str, str]
    firing: dict[str, int]

    def __str__(self) -> str:
        return f"{self.alert}: {self.case}"


def cases() -> list[Case]:
    # As text: `0x60` is 61 zeros here, and a hexadecimal number elsewhere.
    document = yaml.load(CASES.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    abbreviations = document["abbreviations"]
    return [
        Case(
            case["alert"],
            case["case"],
            {spelled_out(name, abbreviations): values for name, values in case["series"].items()},
            {after: int(count) for after, count in case["firing"].items()},
        )
        for case in document["cases"]
    ]


def check(*arguments: str | Path) -> str:
    """What promtool prints; an AssertionError with it if it finds a fault."""
    command = [program("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def written_rules(dialect: Dialect) -> list[dict[str, Any]]:
    """The rules of a dialect, as they lie in the repository."""
    document = yaml.safe_load((ROOT / rules_path(dialect)).read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def rule_of(alert: str, dialect: Dialect) -> dict[str, Any]:
    [rule] = [rule for rule in written_rules(dialect) if rule["alert"] == alert]
    return rule


def run(rule: dict[str, Any], tests: Sequence[dict[str, Any]], folder: Path) -> None:
    """An AssertionError if an alert is not as the tests expect it.

    Args:
        rule: its own rule alone, which takes a tenth of the time that all of them take.
        tests: in promtool's form; each starts with an empty server.
        folder: an empty one, for promtool's files.
    """
    rules, test = folder / "rules.yml", folder / "test.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "tested", "rules": [rule]}]}))
    test.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [*tests]}))
    check("test", "rules", test)


def series_of(case: Case, notation: Notation) -> dict[str, Any]:
    """The part of a test in promtool's form that says what the server has."""
    series = [{"series": notation.promql(name), "values": values} for name, values in case.series.items()]
    return {"interval": "1m", "input_series": series}


def as_test(case: Case, notation: Notation) -> dict[str, Any]:
    """A case in promtool's form."""
    alerts = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    expected = [
        {"expr": alerts, "eval_time": after, "exp_samples": [{"labels": "{}", "value": count}]}
        for after, count in case.firing.items()
    ]
    return {**series_of(case, notation), "promql_expr_test": expected}
