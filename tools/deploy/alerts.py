"""Alert rules of Prometheus, from the form in `alerts.yaml`."""

from __future__ import annotations

from typing import Any

import yaml

from tools.deploy.form import Alerts, Rule, spelled_out
from tools.deploy.notation import Notation


class _Lines(yaml.SafeDumper):
    """Writes queries of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Lines.add_representer(str, _text)


def write(form: Alerts, notation: Notation) -> str:
    """The file for `rule_files` of Prometheus."""
    groups = [
        {"name": group.name, "rules": [_rule(rule, form.abbreviations, notation) for rule in group.rules]}
        for group in form.groups
    ]
    return yaml.dump({"groups": groups}, Dumper=_Lines, sort_keys=False, width=120, allow_unicode=True)


def _rule(rule: Rule, abbreviations: dict[str, str], notation: Notation) -> dict[str, Any]:
    def text(of: str) -> str:
        return notation.annotation(spelled_out(of, abbreviations))

    return {
        "alert": rule.alert,
        "expr": notation.promql(spelled_out(_either(rule), abbreviations)),
        "for": rule.hold,
        "labels": {"severity": rule.severity},
        "annotations": {
            "summary": text(rule.summary),
            "description": text(rule.description),
            "runbook": text(rule.runbook),
        },
    }


def _either(rule: Rule) -> str:
    """The rule's query with each choice of words, joined by `or`."""
    choices = [{f"<{word}>": str(by) for word, by in choice.items()} for choice in rule.any_of]
    return "\nor ".join(spelled_out(rule.expr, choice) for choice in choices)
