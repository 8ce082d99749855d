"""Shows what a process exported to a person: one line per series, with its latest value, its unit and its course."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import pairwise

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.scope import SCOPE
from akka_otel_callbacks.reading import Series, Session, words
from akka_otel_callbacks.reading.points import Key

BARS = "▁▂▃▄▅▆▇█"
COURSE_WIDTH, SHORT_COURSE_WIDTH = 16, 8
WIDE, NARROW, NARROWEST = 104, 76, 52
"""Columns of a terminal that has room for everything beside the longest of our names, for a course of full width, and
for a course at all."""
NUMBERS = ("latest", "first", "least", "most", "count", "mean", "≈ p50", "≈ p90")
UNITS = {"1": "ratio", "By": "bytes", "Cel": "°C"}


def tables(session: Session, width: int) -> Iterator[RenderableType]:
    """The series of what one process exported, for a terminal of that many columns."""
    series = session.sorted_series()
    scalars = [one for one in series if one.histogram is None]
    histograms = [one for one in series if one.histogram is not None]
    if scalars:
        yield _scalars(scalars, session, width)
    if histograms:
        yield _histograms(histograms, session, width)
    notes = []
    if any(one.name.startswith(names.PREFIX) for one in series):
        notes.append(f"Names are shown without their prefix {names.PREFIX}")
    if not all(map(session.is_current, series)):
        notes.append("Dim: not part of the newest export, the last value it had.")
    if scalars and width < WIDE:
        course = "" if width >= NARROWEST else " and a picture"
        notes.append(f"A terminal of {WIDE} columns also shows the first, least and most{course} of each course.")
    yield Padding(Text("\n".join(notes), style="dim"), (0, 0, 1, 0))


def essentials(session: Session, metrics: Sequence[Metric], width: int, rows: int) -> RenderableType:
    """As many series of these metrics as fit into that many rows, the first metrics first."""
    shown: list[Series] = []
    left = rows - 1  # the head
    for metric in metrics:
        series = [one for one in session.of(metric) if one.histogram is None]
        left -= len(series) + any(one.labels for one in series)
        if left < 0:
            break
        shown += series
    return _scalars(shown, session, width)


def _scalars(series: list[Series], session: Session, width: int) -> Table:
    wide = width >= WIDE
    course = 0 if width < NARROWEST else SHORT_COURSE_WIDTH if width < NARROW else COURSE_WIDTH
    heads = (
        "metric",
        "latest",
        "unit",
        *(("first", "least", "most") if wide else ()),
        *(("over time",) if course else ()),
    )
    return _table(heads, [_scalar_row(one, wide, course) for one in series], series, session)


def _histograms(series: list[Series], session: Session, width: int) -> Table:
    heads = ("count", "mean", "≈ p50", "≈ p90", "unit")
    shown = heads if width >= NARROW else heads[1:4] if width >= NARROWEST else heads[1:4:2]
    rows = ([cell for head, cell in zip(heads, _histogram_row(one), strict=True) if head in shown] for one in series)
    return _table(("histogram", *shown), rows, series, session)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], series: list[Series], session: Session) -> Table:
    """One row per series. A metric with attributes is named once, above its series. A metric of somebody else's that
    has one of our names says whose it is."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        right = head in NUMBERS
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    ours, named = our_names(one.key for one in series), ""
    for one, row in zip(series, rows, strict=True):
        if one.labels and one.name != named:
            table.add_row(short(one.name))
        named = one.name
        first = f"  {labels(one.key)}" if one.labels else short(one.name)
        first += whose(one.key, ours)
        table.add_row(first, *row, style=None if session.is_current(one) else "dim")
    return table


def _scalar_row(series: Series, wide: bool, course: int) -> tuple[str, ...]:
    """The row of a series with one number. A counter has no sparkline: its latest value says all.

    Args:
        wide: whether the row also has the first, the least and the most.
        course: how many characters the sparkline has at most. None of it for 0.
    """
    values = () if series.total else series.values
    row = [figure(series.values[-1]), unit(series.unit)]
    if wide:
        finite = [value for value in values if math.isfinite(value)]
        ends = (values[0], min(finite), max(finite)) if len(values) > 1 and finite else ()
        row += map(figure, ends) if ends else ("", "", "")
    return (*row, sparkline(values, course)) if course else (*row,)


def _histogram_row(series: Series) -> tuple[str, ...]:
    histogram = series.histogram
    assert histogram is not None
    figures = (histogram.count, histogram.mean, histogram.quantile(0.5), histogram.quantile(0.9))
    return (*map(figure, figures), unit(series.unit))


def figure(value: float | None) -> str:
    """A value to four significant digits, and a whole number in full. A dash stands for no value."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.4g}"
    return f"{value:.4g}"


def unit(ucum: str) -> str:
    """A UCUM unit as a person would write it: `{token}/s` is token/s."""
    return UNITS.get(ucum, printable(ucum.replace("{", "").replace("}", "")))


def sparkline(values: Sequence[float], width: int = COURSE_WIDTH) -> str:
    """The course of the finite values. Each character is the mean of an equal share of them. It is empty for fewer than
    two."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    columns = min(width, len(finite))
    edges = [round(column * len(finite) / columns) for column in range(columns + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    if span == 0 or not math.isfinite(span):
        return BARS[0] * columns
    return "".join(BARS[min(int((mean - low) / span * len(BARS)), len(BARS) - 1)] for mean in means)


def labels(key: Key) -> str:
    """What tells a series from the others of its metric. For our own metrics the values of the attributes say
    enough."""
    ours = key.name.startswith(names.PREFIX)
    return printable(", ".join(short(value) if ours else f"{name}={short(value)}" for name, value in key.labels))


def our_names(keys: Iterable[Key]) -> set[str]:
    return {key.name for key in keys if key.scope == SCOPE}


def whose(key: Key, ours: Set[str]) -> str:
    """Says whose a series is that is not ours but has the name of one of ours. Empty for any other."""
    return f" ({printable(key.scope)})" if key.name in ours and key.scope != SCOPE else ""


def short(name: str) -> str:
    """A name without the prefix that all of ours have, as a terminal can print it."""
    return printable(words.short(name))


def count_of(number: int, thing: str, things: str = "") -> str:
    """How many there are, in words."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"
