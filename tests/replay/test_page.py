"""The page of a past run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from akka_otel_callbacks.report import report
from akka_otel_callbacks.report.absences import NOT_LOGGED, NOT_SAID
from akka_otel_callbacks.report.page import page
from tests.replay.replayed import FIXTURES, command


@pytest.mark.parametrize(
    ("log", "drawn"),
    [
        ("grpo_early_names.trainer_state.json.gz", "reward"),
        ("sft_six_eval_sets.trainer_state.json", "loss"),
        ("verl_oldest_console.log", "reward"),
    ],
)
def test_what_the_log_lacks_is_absent_because_of_the_log(tmp_path: Path, log: str, drawn: str) -> None:
    assert command(FIXTURES / log, environ={"AKKA_OTEL_DIR": str(tmp_path)}).exit_code == 0
    made = page(report(tmp_path).runs, time.time_ns())
    assert made["runs"][0]["facts"][0] == {
        "label": "State",
        "value": "no end recorded",
        "hint": "from the log of a past run, which has no times",
    }, "it does not run, though its file is new"
    assert "began" not in {row["label"] for row in made["who"]}, "the log does not say when"
    panels = {panel["name"]: panel for panel in made["panels"]}
    assert panels[drawn]["charts"]
    reasons = {reason for panel in panels.values() if not panel["charts"] for reason in panel["why"]}
    assert {NOT_LOGGED} <= reasons <= {NOT_LOGGED, NOT_SAID}
    assert {one["why"] for one in made["absent"]} == {NOT_LOGGED}
    assert all(panel["charts"] or panel["why"] for panel in panels.values())
