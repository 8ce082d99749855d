"""What a hook should have brought by the second step and did not is named once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.driver.unseen import Unseen

SCORED = {"critic/score/mean": 0.5}
CLIPPED = {"actor/pg_clipfrac": 0.1}
SIDES = {**CLIPPED, "actor/pg_clipfrac_high": 0.05}
GSPO = {"actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "gspo"}}}}


def said(
    caplog: pytest.LogCaptureFixture, steps: list[tuple[dict[str, float], list[Rollouts]]], config: Any = ()
) -> str:
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        unseen = Unseen(dict(config))
        for row, rollouts in steps:
            unseen.check(row, rollouts)
    return caplog.text


def test_rollouts_that_never_come_are_named_by_the_second_step(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, [(SCORED, [])]) == ""
    text = said(caplog, [(SCORED, [])] * 5)
    assert text.count("compute_data_metrics") == 1
    assert "zero-variance groups" in text


def test_sides_that_never_come_are_named_where_the_loss_has_sides(caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, [(CLIPPED, [])] * 5, GSPO) == ""
    text = said(caplog, [(CLIPPED, [])] * 5)
    assert text.count("clip ratio by side") == 1


def test_nothing_is_said_where_they_come_or_where_there_is_no_sign(caplog: pytest.LogCaptureFixture) -> None:
    rollouts = [Rollouts()]
    assert said(caplog, [({**SCORED, **SIDES}, rollouts), *[({**SCORED, **CLIPPED}, [])] * 5]) == ""
    assert said(caplog, [({"timing_s/step": 1.0}, [])] * 5) == ""
