"""A chart of several runs as JSON: no more points than are seen, and no more digits than count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from akka_otel_callbacks.report.drawing import Heat
from akka_otel_callbacks.report.drawn import Drawn, Mark
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.panel import Chart
from akka_otel_callbacks.report.thinning import extremes, parts

DIGITS = 5
"""Digits of a value: more than a chart or a legend shows."""
MOST_MARKS = 40
"""Marks of one kind in a chart: as many as can be told apart on a laptop."""

Json = dict[str, Any]


def drawn_of(chart: Chart, run: History) -> Iterator[Drawn]:
    """Everything that it draws of a run as lines."""
    for drawing in chart.drawings:
        yield from drawing.drawn(run)


def chart_of(chart: Chart, runs: Sequence[History], drawn: Sequence[Sequence[Drawn]], most: int) -> Json:
    """A chart of all runs.

    Args:
        drawn: what `drawn_of` gave of each run.
        most: how many values a course has at most.
    """
    return {
        "title": chart.title,
        "drawn": [
            {"run": number, **_thinned(one, most)} for number, found in enumerate(drawn) for one in found if one.rows
        ],
        "heat": [
            {"run": number, **heat}
            for number, run in enumerate(runs)
            if chart.heat and (heat := _heat(chart.heat, run))
        ],
        "marks": [
            {"run": number, "x": x_of(mark.x), "text": mark.text, "bad": mark.bad}
            for number, run in enumerate(runs)
            for marks in chart.marks
            for mark in _few([*marks(run)])
        ],
        "limits": [
            {"run": number, "name": name, "y": value}
            for number, run in enumerate(runs)
            for name, value in chart.limits(run)
        ],
    }


def _few(marks: Sequence[Mark]) -> Iterator[Mark]:
    """The first one of each part of the run, with how many more it has: a run whose weights are NaN has one a step."""
    marks = sorted(marks, key=lambda mark: mark.x)
    for part in parts([mark.x for mark in marks], MOST_MARKS):
        first, last = marks[part[0]], marks[part[-1]]
        until = f" until step {last.x:,.0f}" if last.x > first.x else ""
        more = f", and {len(part) - 1:,} more marks{until}" if len(part) > 1 else ""
        yield Mark(first.x, f"{first.text}{more}", any(marks[place].bad for place in part))


def _thinned(drawn: Drawn, most: int) -> Json:
    """What is drawn, with no more points than that.

    A line of more has the mean of each part of the run, and its lowest and highest value. Of a band the outer bounds
    stay. The parts of a stack must be of one step, so that of each part the lowest and the highest stack stay.
    """
    described = {"form": drawn.form, "unit": drawn.unit, "right": drawn.right, "quiet": drawn.quiet}
    if drawn.form in ("line", "band"):
        if len(drawn.x) > most:
            return {**described, **_in_parts(drawn, parts(drawn.x, most // 3))}
        most = len(drawn.x)
    sums = [sum(value or 0.0 for value in values) for values in zip(*(row.values for row in drawn.rows), strict=True)]
    places = extremes(drawn.x, sums, most)
    rows = [{"name": row.name, "y": [y_of(row.values[place]) for place in places]} for row in drawn.rows]
    return {**described, "x": [x_of(drawn.x[place]) for place in places], "rows": rows}


def _in_parts(drawn: Drawn, found: Sequence[range]) -> Json:
    x = [x_of((drawn.x[part[0]] + drawn.x[part[-1]]) / 2) for part in found]
    known = [[[v for v in row.values[part[0] : part[-1] + 1] if v is not None] for part in found] for row in drawn.rows]
    least, most = ([[y_of(pick(some)) if some else None for some in row] for row in known] for pick in (min, max))
    if drawn.form == "band":
        return {
            "x": x,
            "rows": [{"name": drawn.rows[0].name, "y": least[0]}, {"name": drawn.rows[1].name, "y": most[1]}],
        }
    means = [y_of(fmean(some)) if some else None for some in known[0]]
    return {"x": x, "rows": [{"name": drawn.rows[0].name, "y": means}], "low": least[0], "high": most[0]}


def _heat(drawing: Heat, run: History) -> Json | None:
    """The columns with a value, of the buckets from the lowest to the highest that ever had one."""
    columns = drawing.columns(run)
    used = sorted({(b.low, b.high) for column in columns for b in column.buckets if b.count})
    if not used:
        return None
    edges = [
        edge for edge in sorted({(b.low, b.high) for c in columns for b in c.buckets}) if used[0] <= edge <= used[-1]
    ]
    counts = [{(b.low, b.high): b.count for b in c.buckets} for c in columns]
    return {
        "unit": drawing.metric.unit,
        "buckets": [[_edge(low), _edge(high)] for low, high in edges],
        "since": [x_of(column.since) for column in columns],
        "until": [x_of(column.until) for column in columns],
        "counts": [[of.get(edge, 0) for edge in edges] for of in counts],
    }


def x_of(step: float) -> float:
    """A step, or a place within one."""
    return int(step) if step == int(step) else round(step, 3)


def y_of(value: float | None) -> float | None:
    """A value with the digits that count."""
    if value is None:
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _edge(bound: float) -> float | None:
    """JSON has no infinity."""
    return bound if abs(bound) != float("inf") else None
