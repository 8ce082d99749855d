"""The form of the files that dashboards and alert rules are written in: YAML, in the registry's names.

Names stand in backquotes, as `notation` explains. What a file says often gets an abbreviation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from tools.model import Form, Sentence

F = TypeVar("F", bound=Form)
Words = dict[str, str]
Text = Annotated[str, BeforeValidator(lambda text: text.strip() if isinstance(text, str) else text)]


def _as_query(given: object) -> object:
    return {"expr": given} if isinstance(given, str) else given


class Query(Form):
    """One PromQL query of a panel.

    Attributes:
        expr: PromQL in the registry's names.
        title: the name of its series; of a table, its column's title.
        unit: Grafana's, of a column; by default that of the first metric in the query.
    """

    expr: Text
    title: str = ""
    unit: str = ""


class Panel(Form):
    """One panel.

    Attributes:
        kind: `lines` and `stacked` draw series, `stat` shows the value now, `table` has a row for each label set and a
            column for each query, `heatmap` takes a histogram's buckets.
        metric: what gives unit and description where the first metric of the queries does not.
        unit: Grafana's; by default that of the metric.
        description: by default what the registry says of the metrics in the queries.
        columns: of a table, the titles of labels, in order; other labels are not shown. An attribute's name stands in
            backquotes, as in queries.
        links: of a table, which dashboard a column leads to, by the column's title. It gets the row's run.
        absent: what a panel without data says.
        width: in 24ths of the page.
    """

    title: str
    kind: Literal["lines", "stacked", "stat", "table", "heatmap"] = "lines"
    metric: str = ""
    unit: str = ""
    description: Sentence | None = None
    queries: Annotated[tuple[Annotated[Query, BeforeValidator(_as_query)], ...], Field(min_length=1)]
    columns: Words = Field(default_factory=dict)
    links: Words = Field(default_factory=dict)
    absent: str = "No data"
    width: int = Field(default=8, ge=3, le=24)
    height: int = Field(default=8, ge=3, le=20)


class Row(Form):
    """Panels that answer one question."""

    title: str
    panels: Annotated[tuple[Panel, ...], Field(min_length=1)]


class Variable(Form):
    """A choice at the top of a dashboard.

    Attributes:
        attribute: whose values can be chosen.
        of: a selector of the series that have them.
        several: whether several values, or all, may be chosen.
    """

    name: str
    attribute: str
    of: str
    several: bool = False


class DashboardForm(Form):
    """A dashboard.

    Attributes:
        uid: what its address and other dashboards' links name it by.
        abbreviations: what stands for what in queries.
        leads_to: the titles of links to other dashboards, by UID.
    """

    uid: Annotated[str, Field(pattern=r"^[a-z-]{1,40}$")]
    title: str
    description: str
    abbreviations: Words = Field(default_factory=dict)
    variables: tuple[Variable, ...]
    leads_to: Words
    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


class Rule(Form):
    """An alert rule. Texts are templates, in which ``{{`run.id`}}`` is a label of the alert.

    Attributes:
        any_of: what to put in the place of the words in angle brackets, such as `<window>`. The alert fires where the
            query has a result with any of them.
        hold: how long the query must have a result before the alert fires, such as `5m`.
        summary: one line that says what is wrong with what.
        description: what is known, with the value where it says something.
        runbook: what to do.
    """

    alert: Annotated[str, Field(pattern=r"^Akka[A-Za-z]+$")]
    severity: Literal["critical", "warning", "info"]
    expr: Text
    any_of: tuple[dict[str, str | int], ...] = ({},)
    hold: str = "0m"
    summary: Sentence
    description: Sentence
    runbook: Sentence


class RuleGroup(Form):
    """Rules about one thing, evaluated together."""

    name: str
    rules: Annotated[tuple[Rule, ...], Field(min_length=1)]


class Alerts(Form):
    """All alert rules.

    Attributes:
        abbreviations: what stands for what in queries.
    """

    abbreviations: Words = Field(default_factory=dict)
    groups: Annotated[tuple[RuleGroup, ...], Field(min_length=1)]


class FormError(Exception):
    """A file that dashboards or rules are written in is not as it should be. One line names the file and the fault."""


def read(path: Path, form: type[F]) -> F:
    """A file in its form.

    Raises:
        FormError: where it is no YAML or has another form.
    """
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return form.model_validate(document)
    except yaml.YAMLError as error:
        raise FormError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise FormError(f"{path.name}: {place}: {problem['msg']}") from error


def spelled_out(text: str, abbreviations: Words) -> str:
    """The text without abbreviations."""
    for short, long in abbreviations.items():
        text = text.replace(short, long)
    return text
