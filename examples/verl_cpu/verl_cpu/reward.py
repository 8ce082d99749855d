"""The reward function of the demonstration, with two terms beside the score that verl trains on."""

from __future__ import annotations

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> dict:
    """Rewards digits and brevity; what is not the `score` reaches verl as `reward_extra_info`."""
    digit = float(any(char.isdigit() for char in solution_str))
    brevity = max(0.0, 1 - len(solution_str) / 32)
    score = 0.5 * digit + (brevity if brevity > 0.5 else 0.0)
    return {"score": score, "digit": digit, "brevity": brevity, "acc": digit > 0, "note": "text"}
