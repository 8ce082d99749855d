"""The lines of a terminal's log without what others put around them: colours, times, who printed a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from akka_otel_callbacks.common.text import ESCAPES
from akka_otel_callbacks.replay.log import LATEST_NS
from akka_otel_callbacks.replay.text import lines

BARE_COLOUR = re.compile(r"\[\d{1,3}(?:;\d{1,3})*m")
"""A colour whose escape character was lost, as in a copy from a terminal."""
ACTOR = re.compile(r"\s*\((?P<actor>\S+ (?:pid|rank)=[^)]*)\) ?")
"""Who printed the line, as Ray puts it before it."""
TIME = re.compile(
    r"\s*[\[(]?(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    r" ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?[\])]?[:,]?\s+"
)
"""Before a line, as `kubectl logs --timestamps`, `ts` and logging frameworks write it."""
TEXTS, TIMES = ("log", "message", "msg", "line"), ("time", "timestamp", "ts", "@timestamp")
"""Fields of a line that a container runtime or a collector of logs has wrapped in JSON."""


class Printed(NamedTuple):
    """One line of a terminal."""

    text: str
    actor: str | None = None
    """Which of Ray's processes printed it. None where the line does not say."""
    time_ns: int | None = None
    """In Unix nanoseconds; without a zone it is taken for UTC. None where the line has no time that can be true."""
    is_whole: bool = True
    """Whether its end was there."""


def printed(path: Path) -> Iterator[Printed]:
    """Every line of a file."""
    for line in lines(path):
        yield _unwrapped(line.text, line.is_whole)


def _unwrapped(text: str, is_whole: bool) -> Printed:
    time_ns: int | None = None
    if text.startswith("{") and (inner := _from_json(text)) is not None:
        text, stamp = inner
        time_ns = _time_ns(TIME.match(f"{stamp} "))
    text = BARE_COLOUR.sub("", ESCAPES.sub("", text))
    actor: str | None = None
    for _ in range(2):  # the time may stand before the actor or behind it
        if time_ns is None and (stamped := TIME.match(text)) is not None:
            time_ns, text = _time_ns(stamped), text[stamped.end() :]
        if actor is None and (named := ACTOR.match(text)) is not None:
            actor, text = named["actor"], text[named.end() :]
    return Printed(text, actor, time_ns, is_whole)


def _from_json(line: str) -> tuple[str, str] | None:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = next((fields[name] for name in TEXTS if isinstance(fields.get(name), str)), None)
    return None if text is None else (text.rstrip("\r\n"), str(next((fields[n] for n in TIMES if n in fields), "")))


def _time_ns(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    zone = (found["zone"] or "Z").replace("UTC", "Z").replace("Z", "+0000").replace(":", "")
    try:
        moment = datetime.strptime(found["time"].replace("T", " ") + zone, "%Y-%m-%d %H:%M:%S%z")
    except ValueError:
        return None
    time_ns = int(moment.timestamp()) * 10**9 + int((found["fraction"] or "0").ljust(9, "0"))
    return time_ns if 0 < time_ns < LATEST_NS else None  # Go writes the year 1 where it has no time
