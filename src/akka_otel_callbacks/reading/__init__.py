"""Reads the telemetry of runs from files, whoever wrote them and however much it is.

    files(path)                    the files behind a path: one, a run's, or those of a Collector
    runs(folder)                   the folders of the runs in it
    Reader(files).read()           the runs that they tell of: series, spans, warnings, and how each run ended

A reader reads on where files grow. The figures of a training are in `run.session`, those of its further processes in
`run.others`; `session.of(metric)` gives the series of a metric.
"""

from akka_otel_callbacks.reading.places import files, runs
from akka_otel_callbacks.reading.reader import Reader, Source
from akka_otel_callbacks.reading.run import Run, Steps
from akka_otel_callbacks.reading.series import Series
from akka_otel_callbacks.reading.sessions import Session

__all__ = ["Reader", "Run", "Series", "Session", "Source", "Steps", "files", "runs"]
