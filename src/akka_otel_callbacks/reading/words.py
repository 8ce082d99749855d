"""Numbers and names as people say them."""

from __future__ import annotations

from datetime import datetime, timezone

from akka_otel_callbacks.common.vocabulary import names


def duration(seconds: float) -> str:
    """A duration as a person would say it, in two units at most: `3.2 s`, `12 min 4 s`, `2 d 3 h`. A negative one,
    which clocks of two machines can give, is 0."""
    seconds = max(seconds, 0.0)
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    return f"{hours} h {minutes} min" if not days else f"{days} d {hours_left} h"


def clock_time(time_ns: int) -> str:
    """Unix nanoseconds in UTC, to the second."""
    return f"{datetime.fromtimestamp(time_ns // 10**9, timezone.utc):%Y-%m-%d %H:%M:%S}"


def short(name: str) -> str:
    """A name without the prefix that all of ours have."""
    return name.removeprefix(names.PREFIX)
