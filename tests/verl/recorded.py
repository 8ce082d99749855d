"""Log calls of real verl 0.9.1 trainings, as `Tracking.log` received them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.verl.driver.translation import LogCall, Translation

FIXTURES = Path(__file__).parents[1] / "fixtures" / "verl"
RL_RUNS = (
    "v1_grpo_kl_val_2",
    "v0_grpo_kl_val_2",
    "v1_clip_sides_2",
    "v1_lora_1",
    "v0_tools_1",
    "v1_separate_async_2",
    "fully_async_2",
)
STEP_KEY = "training/global_step"


def calls(run: str) -> list[tuple[int, dict[str, Any]]]:
    """The step number and the row of every call."""
    return [(call["step"], call["data"]) for call in json.loads((FIXTURES / f"{run}.json").read_text())["calls"]]


def steps(run: str) -> list[tuple[int, dict[str, Any]]]:
    """The calls that complete a step."""
    return [(number, row) for number, row in calls(run) if STEP_KEY in row]


def replay(run: str, translation: Translation, recorder: Recorder) -> None:
    for number, row in calls(run):
        LogCall(translation, row, number).deliver(recorder)
