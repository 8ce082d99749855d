"""What the page draws, as data: verdicts, panels, who the runs were, and what is absent. JSON holds all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.reading.words import short
from akka_otel_callbacks.report import facts
from akka_otel_callbacks.report.absences import NOT_SAID, absences
from akka_otel_callbacks.report.charts import Json, chart_of, drawn_of, x_of
from akka_otel_callbacks.report.drawn import Drawn
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.panel import Panel
from akka_otel_callbacks.report.panels import panels_of
from akka_otel_callbacks.report.rules import RULES
from akka_otel_callbacks.report.thinning import extremes

POINTS = 36_000
"""Values of all courses of a page together. One takes 10 bytes or less, so that the data stay below 400 kB."""
LEAST, MOST = 12, 1_500
"""Values of one course."""
KNOTS = 400
"""How many of the steps' times the page has. Between them time is taken to pass evenly."""


def page(runs: Sequence[History], now_ns: int, *, version: int | None = None) -> Json:
    """Everything that the page shows.

    Args:
        runs: one to look at, or several to compare; none where there is none yet.
        now_ns: when the page is made, in Unix nanoseconds.
        version: of a page that renews itself; None for one that stays as it is.
    """
    table = panels_of(runs)
    drawn = [[[[*drawn_of(chart, run)] for run in runs] for chart in panel.charts] for panel in table]
    rows = sum(len(one.rows) for charts in drawn for of_runs in charts for found in of_runs for one in found)
    most = min(max(POINTS // max(rows, 1), LEAST), MOST)
    metrics = [metric for panel in table for metric in panel.metrics]
    return {
        "made": now_ns // 1_000_000,
        "version": version,
        "runs": [_run(run, now_ns) for run in runs],
        "verdicts": [*_verdicts(runs)],
        "rules": [{"name": rule.name, "words": rule.words, "panel": rule.panel} for rule in RULES],
        "panels": [_panel(panel, runs, charts, most) for panel, charts in zip(table, drawn, strict=True)],
        "who": _who(runs),
        "absent": _absent(runs, metrics),
    }


def _run(run: History, now_ns: int) -> Json:
    clock = [*run.clock, *([run.latest] if run.latest > run.clock[-1] else [])]
    places = extremes([step for step, _ in clock], [seconds for _, seconds in clock], KNOTS)
    knots = [clock[place] for place in places]
    return {
        "name": run.name,
        "about": run.about,
        "facts": [fact._asdict() for fact in facts.facts(run, now_ns)],
        "ends": [x_of(run.steps[0]), x_of(clock[-1][0])] if run.steps else [-1, 0],
        "last": x_of(run.steps[-1]) if run.steps else 0,
        "steps": [x_of(step) for step, _ in knots],
        "seconds": [round(seconds, 2) for _, seconds in knots],
    }


def _verdicts(runs: Sequence[History]) -> Iterator[Json]:
    for number, run in enumerate(runs):
        for rule in RULES:
            if found := list(rule.found(run)):
                yield {
                    "run": number,
                    "name": rule.name,
                    "panel": rule.panel,
                    "rule": rule.words,
                    "bad": rule.bad,
                    "found": found,
                }


def _panel(panel: Panel, runs: Sequence[History], drawn: Sequence[Sequence[Sequence[Drawn]]], most: int) -> Json:
    charts = [chart_of(chart, runs, of_runs, most) for chart, of_runs in zip(panel.charts, drawn, strict=True)]
    return {
        "name": panel.name,
        "title": panel.title,
        "question": panel.question,
        "wide": panel.wide,
        "charts": [chart for chart in charts if chart["drawn"] or chart["heat"]],
        "words": [{"run": number, "text": text} for number, run in enumerate(runs) for text in panel.words(run)],
        "why": _why(panel, runs),
    }


def _why(panel: Panel, runs: Sequence[History]) -> list[str]:
    """Why a panel is empty, where it is: the reasons of its figures, each once. One whose figures are all there may
    have none of what it draws of them, such as the time of an evaluation alone."""
    return list(dict.fromkeys(reason for run in runs for _, reason in absences(run, panel.metrics))) or [NOT_SAID]


def _who(runs: Sequence[History]) -> list[Json]:
    """A row for each attribute that one of the runs has; what differs between them is marked."""
    tables = [{fact.label: fact.value for fact in facts.who(run)} for run in runs]
    labels = list(dict.fromkeys(label for table in tables for label in table))
    rows = [(label, [table.get(label, "") for table in tables]) for label in labels]
    return [{"label": label, "values": values, "differs": len(set(values)) > 1} for label, values in rows]


def _absent(runs: Sequence[History], metrics: Sequence[Metric]) -> list[Json]:
    """The figures that are not there, by run and by reason."""
    found: dict[tuple[int, str], list[Json]] = {}
    for number, run in enumerate(runs):
        for metric, reason in absences(run, metrics):
            figure = {"name": short(metric.name), "what": metric.description}
            found.setdefault((number, reason), []).append(figure)
    return [{"run": number, "why": reason, "figures": figures} for (number, reason), figures in found.items()]
