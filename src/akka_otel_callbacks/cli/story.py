"""A run's spans, and the warnings and errors among its log records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.cli.table import count_of, figure, short
from akka_otel_callbacks.reading import Run
from akka_otel_callbacks.reading.log_records import LogRecord
from akka_otel_callbacks.reading.spans import Branch
from akka_otel_callbacks.reading.words import clock_time

NEWEST = 10
"""How many log records are shown."""


def story(run: Run) -> Iterator[RenderableType]:
    """What there is to show. It is empty if the run has neither spans nor records."""
    for trace_id, root in run.traces.items():
        yield Text(f"trace {printable(trace_id)}", style="bold")
        yield Padding(_spans(root), (0, 0, 1, 0))
    if run.records:
        shown = run.records[-NEWEST:]
        left = f", the newest {NEWEST} of them" if len(run.records) > NEWEST else ""
        yield Text(f"{count_of(len(run.records), 'warning or error', 'warnings and errors')}{left}", style="bold")
        yield Padding(_records(shown), (0, 0, 1, 0))


def _spans(root: Branch) -> Table:
    table = _table()
    for head, right in (("span", False), ("count", True), ("mean s", True), ("longest s", True), ("", False)):
        table.add_column(head, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for depth, branch in root.all():
        notes = [f"{branch.failed} failed"] if branch.failed else []
        notes += [f"{branch.unfinished} unfinished"] if branch.unfinished else []
        mean = branch.total_s / branch.count
        numbers = (figure(branch.count), figure(mean), figure(branch.longest_s))
        table.add_row("  " * depth + short(branch.name), *numbers, ", ".join(notes))
    return table


def _records(records: Sequence[LogRecord]) -> Table:
    table = _table()
    for head in ("UTC", "severity", "log record"):
        table.add_column(head, overflow="fold")
    for record in records:
        table.add_row(clock_time(record.time_ns), printable(record.severity), printable(record.body))
    return table


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
