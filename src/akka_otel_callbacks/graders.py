"""Reward terms with telemetry: rules on the clock, and a model as a judge.

    score = graded(score, term="rule:score.py")
    judge = Judge("judge-4b", base_url="http://judge:8000/v1", prompt="Rate from 0 to 1: {completion}")
    GRPOTrainer(..., reward_funcs=[score, judge], callbacks=[AkkaTelemetryCallback()])

It is the same for verl, see docs/graders.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from akka_otel_callbacks.common.graders.failure import GraderFailure
    from akka_otel_callbacks.common.graders.graded import graded
    from akka_otel_callbacks.common.graders.judge import Judge
    from akka_otel_callbacks.common.graders.label_match import JsonLabelMatch
    from akka_otel_callbacks.common.graders.strikes import JudgeStopped

__all__ = ["GraderFailure", "JsonLabelMatch", "Judge", "JudgeStopped", "graded"]

_HOMES = {
    "GraderFailure": "failure",
    "JsonLabelMatch": "label_match",
    "Judge": "judge",
    "JudgeStopped": "strikes",
    "graded": "graded",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"akka_otel_callbacks.common.graders.{_HOMES[name]}"), name)
