"""The warnings and errors among a run's log records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import fields
from akka_otel_callbacks.reading.attributes import labels
from akka_otel_callbacks.reading.fields import MALFORMED

WARNING = 13
"""OTLP's number of the least severity that is shown."""


class LogRecord(NamedTuple):
    """A warning or an error. `event` is the event's name, `error_type` the class of an error; each is empty if the
    record has none."""

    time_ns: int
    severity: str
    body: str
    event: str = ""
    error_type: str = ""


def warnings(records: Iterable[Mapping[str, Any]]) -> Iterator[LogRecord]:
    """The warnings and errors of a document. What is no record is left out."""
    for record in records:
        try:
            if fields.whole(record, "severityNumber") >= WARNING:
                body = fields.text(fields.mapping(record, "body"), "stringValue")
                time_ns = fields.whole(record, "timeUnixNano")
                error_type = dict(labels(record)).get(names.ATTR_ERROR_TYPE.name, "")
                event = fields.text(record, "eventName")
                yield LogRecord(time_ns, fields.text(record, "severityText"), body, event, error_type)
        except MALFORMED:
            continue
