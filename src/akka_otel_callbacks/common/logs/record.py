"""One log line as it leaves the process."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from akka_otel_callbacks.common.recording.labels import clean
from akka_otel_callbacks.common.text import one_line
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Event

LONGEST = 4096
"""Characters of a body."""
EVENT, ATTRIBUTES = "akka_otel_event", "akka_otel_attributes"
"""The attributes of a line of `logging` that carry what `about` gives it."""


def about(event: Event, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """What a line is about, for the `extra` of a logger's call.

    Args:
        event: of the registry.
        attributes: by full name.
    """
    return {EVENT: event.name, ATTRIBUTES: dict(attributes)}


@dataclass(frozen=True, slots=True)
class Record:
    """`time_ns` is Unix time, `severity` a level of `logging`'s, `event` a name in the registry or empty."""

    time_ns: int
    severity: int
    body: str
    event: str
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, line: logging.LogRecord) -> Record:
        """Makes a record of a line. Of an exception it keeps only the name of the class: a message may quote the
        data."""
        given = line.args if isinstance(line.args, tuple) else ()
        errors = [arg for arg in (*given, (line.exc_info or (None, None))[1]) if isinstance(arg, BaseException)]
        told = tuple(type(arg).__name__ if isinstance(arg, BaseException) else arg for arg in given)
        body = one_line(str(line.msg) % told if told else line.getMessage(), LONGEST)
        name = getattr(line, EVENT, "")
        found = dict(getattr(line, ATTRIBUTES, {}))
        if errors:
            found.setdefault(names.ATTR_ERROR_TYPE.name, type(errors[0]).__name__)
        return cls(int(line.created * 1e9), line.levelno, body, name, dict(clean(found)))
