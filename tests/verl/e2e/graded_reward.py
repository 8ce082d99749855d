"""Reward functions with a rule on the clock and a judge, for trainings of the tests. verl loads them by their path."""

from __future__ import annotations

import os
import time
from typing import Any

from akka_otel_callbacks.graders import GraderFailure, Judge, graded

RULE, JUDGE = "rule:digits.py", "model:judge-4b"
SLOW_S = 0.02
judge = Judge(
    "org/judge-4b",
    base_url=os.environ["JUDGE_URL"],
    api_key="sk-of-the-judge",
    prompt="Rate this. {completion}",
    give_up_after=5,
    retries=0,
)


@graded(term=RULE)
def digits(completion: str) -> float:
    time.sleep(SLOW_S)
    if len(completion) % 3 == 0:
        raise GraderFailure("ungradable")
    return float(any(char.isdigit() for char in completion))


async def asynchronous(solution_str: str, **_: Any) -> dict[str, float]:
    """Both in one function, as of verl's asynchronous rewards."""
    return _sum(digits(completion=solution_str), await judge.asynchronous(completion=solution_str))


def plain(solution_str: str, **_: Any) -> dict[str, float]:
    """The same for verl's threads."""
    return _sum(digits(completion=solution_str), judge(completion=solution_str))


def _sum(rule: float, verdict: float) -> dict[str, float]:
    return {"score": rule + verdict, RULE: rule, JUDGE: verdict}


alone = judge.asynchronous
"""The judge as the whole reward."""
