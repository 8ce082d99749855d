"""The logs that a real training left, replayed, against what the backend published while it ran."""

from __future__ import annotations

from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from tests.replay.replayed import Replayed, replayed, short
from tests.verl.e2e.harness import Run

LOGS = {"verl_file": "log.jsonl", "verl_console": "output.log", "tensorboard": "events"}
FLOAT32 = 1e-6
"""What an event file keeps."""
SEEN_OTHERWISE = {
    short(metric.name)
    for metric in (names.RL_STEP_ENTROPY, names.RL_STEP_KL, names.RL_STEP_TOKENS, names.RL_STEP_THROUGHPUT)
} | {short(metric.name) for metric in (names.SFT_STEP_TIMING, names.JOB_STEPS_PLANNED)}
"""The backend has these from the batches, without padding, or with its own clock; the last is no figure of a step."""


def live(run: Run) -> dict[int, dict[tuple[str, tuple[Any, ...]], float]]:
    """By step, what its process published of it."""
    instance = f"{run.run_id}.1.0"
    points = [p for p in run.points if p.resource[names.ATTR_SERVICE_INSTANCE_ID.name] == instance]
    return Replayed(points).of_steps()


def check_replays(run: Run) -> None:
    """Of every log that the training has."""
    published = live(run)
    there = {format: run.directory / log for format, log in LOGS.items() if (run.directory / log).exists()}
    assert {"verl_file", "verl_console"} <= {*there}
    for format, log in there.items():
        found = replayed(log)
        assert found.resource["replay.format"] == format
        check(found, published)
    known = replayed(there["verl_console"]).resource
    told = {"run.method", "run.base_model", "run.settings_sha"} & {*known}
    if run.case.recipe.startswith(("grpo", "tools")):  # verl's supervised trainers print no configuration
        is_early = run.case.recipe == "grpo-v0"  # it changes its configuration after it printed it
        assert told == {"run.method", "run.base_model", *(() if is_early else ("run.settings_sha",))}
    for name in told:
        assert known[name] == run.points[0].resource[names.PREFIX + name]


def check(found: Replayed, published: dict[int, dict[tuple[str, tuple[Any, ...]], float]]) -> None:
    steps = found.of_steps()
    assert [*steps] == [*published]
    compared = 0
    for number, figures in steps.items():
        for series, value in figures.items():
            if series[0] not in SEEN_OTHERWISE:
                assert value == pytest.approx(published[number][series], rel=FLOAT32, abs=1e-12), (number, series)
                compared += 1
    assert compared > 4 * len(steps)
