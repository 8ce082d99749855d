"""The phases of a reinforcement step, by hand."""

from __future__ import annotations

from akka_otel_callbacks.trl.rl_capture import phases


def test_the_update_is_the_step_less_generation_and_scoring() -> None:
    assert phases(7.0, 4.0, 1.0) == {"gen": 4.0, "reward": 1.0, "update_actor": 2.0}


def test_what_did_not_happen_has_no_time() -> None:
    assert phases(7.0, None, None) == {"gen": None, "reward": None, "update_actor": 7.0}


def test_where_generation_cannot_be_timed_neither_can_the_update() -> None:
    assert phases(None, None, 1.0) == {"gen": None, "reward": 1.0, "update_actor": None}
