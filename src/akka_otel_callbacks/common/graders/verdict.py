"""The verdict in a judge's text: a number within bounds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.vocabulary import names

Parse = Callable[[str], Any]
UNREADABLE = names.RlGraderFailureCause.UNREADABLE
SCORE = "score"
FENCED = re.compile(r"\A```\w*\s*\n(.*?)\n?```\Z", re.DOTALL)


def parse_score(text: str) -> Any:
    """The verdict of a reply that is a number, or a JSON object with a number under `score`; either may stand in a
    fenced block.

    Raises:
        ValueError: the reply is anything else.
    """
    stripped = text.strip()
    fenced = FENCED.match(stripped)
    said = json.loads(fenced[1] if fenced else stripped)
    return said[SCORE] if isinstance(said, dict) and SCORE in said else said


def verdict(text: str, parse: Parse, bounds: tuple[float, float]) -> float:
    """The number that a reply stands for.

    Args:
        text: what the judge said.
        parse: gets the verdict out of it; it may raise anything.
        bounds: the lowest and the highest verdict there is.

    Raises:
        GraderFailure: `unreadable`, where there is no such number; another cause, where the parser says so.
    """
    try:
        found = number(parse(text), truth=True)
    except GraderFailure:
        raise
    except Exception:  # noqa: BLE001 - a parser may fail in any way on what a model wrote
        found = None
    lowest, highest = bounds
    if found is None or math.isnan(found) or not lowest <= found <= highest:
        raise GraderFailure(UNREADABLE)
    return found
