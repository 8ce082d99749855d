"""Shows a recording to a person: one line per series, with its latest value, its unit and its course."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from akka_otel_callbacks.cli.figures import Recording, Series, Session
from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.common.vocabulary import names

BARS = "▁▂▃▄▅▆▇█"
COURSE_WIDTH = 16
NUMBERS = ("latest", "count", "mean", "≈ p50", "≈ p90")
UNITS = {"1": "ratio", "By": "bytes", "Cel": "°C"}
TITLE = (names.ATTR_RUN_ENGINE, names.ATTR_RUN_METHOD, names.ATTR_RUN_BASE_MODEL)


def summary(recording: Recording, *, every_session: bool = False) -> RenderableType:
    """The newest session's series, or those of all sessions, and what could not be shown."""
    shown = recording.sessions if every_session else recording.sessions[-1:]
    parts = [part for session in shown for part in _session(session)]
    hidden = len(recording.sessions) - len(shown)
    if hidden:
        parts.append(Text(f"{count_of(hidden, 'earlier session')} in this file: --all shows them too.", style="dim"))
    if recording.unreadable:
        lines = f"{recording.unreadable} of {count_of(recording.lines, 'line')}"
        parts.append(Text(f"{lines} could not be read (torn by a crash?) and {_were(recording.unreadable)} left out."))
    return Group(*parts)


def _session(session: Session) -> Iterator[RenderableType]:
    series = session.sorted_series()
    yield Text(
        " · ".join([*map(printable, _title(session.resource)), count_of(session.exports, "export")]), style="bold"
    )
    scalars = [one for one in series if one.histogram is None]
    histograms = [one for one in series if one.histogram is not None]
    if scalars:
        yield _table(("metric", "latest", "unit", "over time"), map(_scalar_row, scalars), scalars, session)
    if histograms:
        heads = ("histogram", "count", "mean", "≈ p50", "≈ p90", "unit")
        yield _table(heads, map(_histogram_row, histograms), histograms, session)
    notes = []
    if any(one.name.startswith(names.PREFIX) for one in series):
        notes.append(f"Names are shown without their prefix {names.PREFIX}")
    if not all(map(session.is_current, series)):
        notes.append("Dim: not part of the newest export, the last value it had.")
    yield Padding(Text("\n".join(notes), style="dim"), (0, 0, 1, 0))


def _title(resource: Mapping[str, str]) -> Iterator[str]:
    """Which run it is, or which service. Most runs have one attempt only, which needs no number."""
    yield resource.get(names.ATTR_RUN_ID.name) or resource.get(names.ATTR_SERVICE_NAME.name) or "unnamed run"
    attempt = resource.get(names.ATTR_RUN_ATTEMPT.name, "1")
    if attempt != "1":
        yield f"attempt {attempt}"
    for attribute in TITLE:
        if value := resource.get(attribute.name):
            yield value.rpartition("/")[2]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], series: list[Series], session: Session) -> Table:
    """One row per series; a metric that has attributes is named once, above its series."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        right = head in NUMBERS
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    named = ""
    for one, row in zip(series, rows, strict=True):
        if one.labels and one.name != named:
            table.add_row(short(one.name))
        named = one.name
        first = f"  {_labels(one)}" if one.labels else short(one.name)
        table.add_row(first, *row, style=None if session.is_current(one) else "dim")
    return table


def _scalar_row(series: Series) -> tuple[str, ...]:
    course = "" if series.total else sparkline(series.values)
    return figure(series.values[-1]), unit(series.unit), course


def _histogram_row(series: Series) -> tuple[str, ...]:
    histogram = series.histogram
    assert histogram is not None
    figures = (histogram.count, histogram.mean, histogram.quantile(0.5), histogram.quantile(0.9))
    return (*map(figure, figures), unit(series.unit))


def figure(value: float | None) -> str:
    """A value to four significant digits, whole numbers in full; a dash where there is none."""
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
    """The course of the finite values, each character the mean of an equal share of them; empty for fewer than two."""
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


def _labels(series: Series) -> str:
    return printable(", ".join(short(value) for _, value in series.labels))


def short(name: str) -> str:
    """A name without the prefix that all of ours have."""
    return printable(name.removeprefix(names.PREFIX))


def count_of(number: int, thing: str, things: str = "") -> str:
    """How many there are, in words."""
    return f"{number} {thing}" if number == 1 else f"{number} {things or thing + 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
