"""The files of `deploy/` that are generated: for each dialect the dashboards and the alert rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tools.deploy import alerts, grafana
from tools.deploy.form import Alerts, DashboardForm, FormError, read
from tools.deploy.notation import Notation, UnknownName
from tools.prometheus import DIALECTS, Dialect
from tools.registry import Registry

HERE = Path(__file__).parent
RULES = HERE / "alerts.yaml"
DASHBOARDS = sorted((HERE / "dashboards").glob("*.yaml"))


def dashboard_path(name: str, dialect: Dialect) -> str:
    """Where a dashboard lies in the repository; `name` is that of its form."""
    return f"deploy/grafana/{dialect}/{name}.json"


def rules_path(dialect: Dialect) -> str:
    """Where the alert rules lie in the repository."""
    return f"deploy/alerts/{dialect}.yml"


def _write_dashboard(form: Path, dialect: Dialect, registry: Registry) -> str:
    with _naming(form):
        return grafana.write(read(form, DashboardForm), Notation(registry, dialect))


def _write_rules(dialect: Dialect, registry: Registry) -> str:
    with _naming(RULES):
        return alerts.write(read(RULES, Alerts), Notation(registry, dialect))


@contextmanager
def _naming(form: Path) -> Iterator[None]:
    try:
        yield
    except UnknownName as error:
        raise FormError(f"{form.name}: {error}") from error


OUTPUTS: dict[str, Callable[[Registry], str]] = {
    **{
        dashboard_path(form.stem, dialect): partial(_write_dashboard, form, dialect)
        for dialect in DIALECTS
        for form in DASHBOARDS
    },
    **{rules_path(dialect): partial(_write_rules, dialect) for dialect in DIALECTS},
}
"""What writes each file, by its path in the repository."""
