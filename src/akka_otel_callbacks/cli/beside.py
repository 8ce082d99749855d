"""Several runs beside each other: what differs in their settings, and the latest value of each of their series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.cli.table import figure, labels, our_names, short, sparkline, unit, whose
from akka_otel_callbacks.cli.view import course, title
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import Run, Series

COURSE_WIDTH = 8
NAME_WIDTH, RUN_WIDTH = 40, 24
"""Columns of the terminal that the names and units take, and a run's figure with its course. Without room for the
courses there are only the figures."""
OWN = (
    names.ATTR_RUN_ID,
    names.ATTR_RUN_ATTEMPT,
    names.ATTR_SERVICE_INSTANCE_ID,
    names.ATTR_PROCESS_PID,
)
"""Attributes that differ between any two runs."""


def beside(runs: Sequence[Run], width: int) -> RenderableType:
    """Their headers, the resource attributes that differ, and a row for each series with a column for each run, for a
    terminal of that many columns."""
    letters = [_letter(number) for number in range(len(runs))]
    heads = [
        Text(f"{letter}  {' · '.join([*map(printable, title(run)), *course(run)])}", style="bold")
        for letter, run in zip(letters, runs, strict=True)
    ]
    return Group(*heads, Text(), *_differences(letters, runs), _figures(letters, runs, width))


def _letter(number: int) -> str:
    return ascii_uppercase[number] if number < len(ascii_uppercase) else str(number + 1)


def _differences(letters: Sequence[str], runs: Sequence[Run]) -> Iterator[RenderableType]:
    known = sorted({name for run in runs for name in run.resource} - {attribute.name for attribute in OWN})
    rows = {name: [run.resource.get(name, "–") for run in runs] for name in known}
    differing = {name: values for name, values in rows.items() if len({*values}) > 1}
    if differing:
        table = _table(letters, "differs", courses=False)
        for name, values in differing.items():
            table.add_row(short(name), *map(printable, values))
        yield table
        yield Text()


def _figures(letters: Sequence[str], runs: Sequence[Run], width: int) -> Table:
    courses = width >= NAME_WIDTH + RUN_WIDTH * len(runs)
    table = _table(letters, "latest, of a histogram the mean", courses=courses, units=True)
    of_run = [run.session.series if run.session else {} for run in runs]
    keys = {key for series in of_run for key in series}
    ours = our_names(keys)
    for key in sorted(keys):
        found = [series.get(key) for series in of_run]
        units = {series.unit for series in found if series is not None}
        cells = [cell for series in found for cell in _cells(series, courses)]
        table.add_row(
            f"{short(key.name)}  {labels(key)}".rstrip() + whose(key, ours), *cells, ", ".join(map(unit, sorted(units)))
        )
    return table


def _cells(series: Series | None, courses: bool) -> Iterator[str]:
    if series is None:
        yield "–"
    elif series.histogram is not None:
        yield figure(series.histogram.mean)
    else:
        yield figure(series.values[-1])
    if courses:
        yield sparkline(series.values, COURSE_WIDTH) if series is not None and not series.total else ""


def _table(letters: Sequence[str], head: str, *, courses: bool, units: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(head, overflow="fold")
    for letter in letters:
        table.add_column(letter, justify="right", overflow="fold")
        if courses:
            table.add_column("", no_wrap=True)
    if units:
        table.add_column("unit", overflow="fold")
    return table
