from __future__ import annotations

from akka_otel_callbacks.common.recording.log_keys import LogKey, fill
from akka_otel_callbacks.common.vocabulary.step import RLStep

KEYS = (LogKey("new", "kl"), LogKey("old", "kl"), LogKey("rate", "learning_rate"))


def test_the_first_key_of_a_field_that_has_a_value_fills_it() -> None:
    row = {"old": 2.0, "rate": 0.0}
    assert fill(RLStep(), KEYS, lambda key: row.get(key.key)) == RLStep(kl=2.0, learning_rate=0.0)
    row = {"new": 1.0, "old": 2.0}
    assert fill(RLStep(), KEYS, lambda key: row.get(key.key)) == RLStep(kl=1.0)


def test_a_field_that_is_set_stays() -> None:
    assert fill(RLStep(kl=0.0), KEYS, lambda key: 5.0) == RLStep(kl=0.0, learning_rate=5.0)
