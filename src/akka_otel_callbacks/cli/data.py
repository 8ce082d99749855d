"""Runs as data, for programs and spreadsheets: JSON with everything, or CSV with a row for each value."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from akka_otel_callbacks.cli.output import printable
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import Run, Series, Session, Steps
from akka_otel_callbacks.reading.histogram import Histogram

QUANTILES = {"p50": 0.5, "p90": 0.9}
COLUMNS = ("run", "attempt", "instance", "metric", "attributes", "unit", "statistic", "time", "step", "value")


def write_json(runs: Sequence[Run], to: TextIO) -> None:
    """One document, in ASCII: nothing in it can command a terminal."""
    json.dump({"runs": [_run(run) for run in runs]}, to, allow_nan=False)
    to.write("\n")


def write_csv(runs: Sequence[Run], to: TextIO) -> None:
    """A row for each value of each series, and for each statistic of a histogram's newest point. Times are in UTC."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow(COLUMNS)
    for run in runs:
        steps = run.steps()
        for session in run.sessions:
            for series in session.sorted_series():
                rows.writerows(_rows(session, series, steps))
                to.write(written.getvalue())
                written.seek(0)
                written.truncate()


def _run(run: Run) -> dict[str, Any]:
    steps = run.steps()
    return {
        "name": run.name,
        "resource": dict(run.resource),
        "ending": {"how": run.ending.how.value, "error_type": run.ending.error_type or None},
        "start_unix_nano": run.start_ns or None,
        "newest_unix_nano": run.newest_ns or None,
        "step": run.step,
        "planned_steps": run.planned,
        "processes": [
            {
                "resource": dict(session.resource),
                "series": [_series(series, steps) for series in session.sorted_series()],
            }
            for session in run.sessions
        ],
        "spans": {
            trace: [
                {"depth": depth, "name": b.name, "count": b.count, "total_s": b.total_s, "failed": b.failed}
                for depth, b in root.all()
            ]
            for trace, root in run.traces.items()
        },
        "warnings": [
            {"time_unix_nano": record.time_ns, "severity": record.severity, "body": record.body}
            for record in run.records
        ],
    }


def _series(series: Series, steps: Steps) -> dict[str, Any]:
    known: dict[str, Any] = {
        "metric": series.name,
        "kind": series.key.kind,
        "scope": series.key.scope,
        "unit": series.unit,
        "attributes": dict(series.labels),
    }
    if series.histogram is not None:
        return known | {"newest": {name: _number(value) for name, value in _statistics(series.histogram)}}
    times = [*series.times]
    return known | {
        "time_unix_nano": times,
        "step": [_number(steps.at(time_ns)) for time_ns in times],
        "values": [*map(_number, series.values)],
    }


def _rows(session: Session, series: Series, steps: Steps) -> Iterator[tuple[Any, ...]]:
    identity = (names.ATTR_RUN_ID, names.ATTR_RUN_ATTEMPT, names.ATTR_SERVICE_INSTANCE_ID)
    labels = "; ".join(f"{key}={value}" for key, value in series.labels)
    texts = [*(session.resource.get(name.name, "") for name in identity), series.name, labels, series.unit]
    who = [printable(text, len(text)) for text in texts]
    if series.histogram is not None:
        for name, value in _statistics(series.histogram):
            yield (*who, name, _when(series.newest), _plain(steps.at(series.newest)), _plain(value))
    for time_ns, value in zip(series.times, series.values, strict=True):
        yield (*who, "", _when(time_ns), _plain(steps.at(time_ns)), _plain(value))


def _statistics(histogram: Histogram) -> Iterable[tuple[str, float | None]]:
    yield from (("count", histogram.count), ("mean", histogram.mean), ("min", histogram.low), ("max", histogram.high))
    yield from ((name, histogram.quantile(q)) for name, q in QUANTILES.items())


def _number(value: float | None) -> float | str | None:
    """JSON has no word for what is not finite; these are OTLP's."""
    if value is None or math.isfinite(value):
        return int(value) if value is not None and value == int(value) and abs(value) < 2**53 else value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain(value: float | None) -> str:
    return "" if value is None else str(_number(value))


def _when(time_ns: int) -> str:
    """A time in UTC, to the microsecond. Empty if the point has none."""
    seconds, ns = divmod(time_ns, 10**9)
    found = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=ns // 1000)
    return found.isoformat() if time_ns else ""
