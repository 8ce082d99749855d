"""Every query that `deploy/` holds, for tests that send them to a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tools.prometheus import DIALECTS, Dialect

VALUES_OF_LABEL = re.compile(r"label_values\((.+), [^,]+\)")


class DeployedQuery(NamedTuple):
    """One query.

    Attributes:
        where: its file, and the panel, variable or alert in it.
        expr: PromQL. A dashboard's has Grafana's variables in it: `$run`, `$attempt`, `$project`, `$__rate_interval`.
        dialect: that of its names.
    """

    where: str
    expr: str
    dialect: Dialect


def queries(root: Path) -> Iterator[DeployedQuery]:
    """The queries of all panels, variables and alert rules.

    Args:
        root: the folder of the repository.
    """
    for dialect in DIALECTS:
        for path in sorted((root / "deploy/grafana" / dialect).glob("*.json")):
            for name, expr in _of_dashboard(json.loads(path.read_text(encoding="utf-8"))):
                yield DeployedQuery(f"{path.relative_to(root)}: {name}", expr, dialect)
        rules = root / "deploy/alerts" / f"{dialect}.yml"
        for group in yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                yield DeployedQuery(f"{rules.relative_to(root)}: {rule['alert']}", rule["expr"], dialect)


def _of_dashboard(dashboard: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for variable in dashboard["templating"]["list"]:
        if (query := variable.get("query")) and (found := VALUES_OF_LABEL.fullmatch(query)):
            yield f"variable {variable['name']}", found[1]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} ({target['refId']})", target["expr"]
