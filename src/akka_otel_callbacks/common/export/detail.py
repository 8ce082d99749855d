"""How fine the spans of a job are."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from akka_otel_callbacks.common.text import one_line

VARIABLE = "AKKA_OTEL_SPANS"


class Detail(IntEnum):
    """How fine the spans are. Each level has the spans of the one before. Evaluations and checkpoint operations have
    spans at every level."""

    JOB = 0
    STEP = 1
    PHASE = 2


def detail(environ: Mapping[str, str], warnings: list[str]) -> Detail:
    """The level that `AKKA_OTEL_SPANS` asks for. An unknown value costs a warning."""
    text = environ.get(VARIABLE, "").strip()
    found = Detail.__members__.get(text.upper(), Detail.JOB)
    if text and text.upper() not in Detail.__members__:
        known = ", ".join(name.lower() for name in Detail.__members__)
        warnings.append(f"{VARIABLE}={one_line(text, 100)!r} is not one of {known}; job is used")
    return found
