from __future__ import annotations

import itertools
import logging
import math

import pytest

from akka_otel_callbacks.common.flops import MatmulParameters, mfu, train_flops, utilization

PARAMETERS = MatmulParameters(layers=1000, head=200)


def test_a_training_pass_is_six_flops_per_parameter_and_token() -> None:
    assert train_flops(PARAMETERS, tokens=10) == 6 * 1200 * 10


def test_a_token_whose_logits_nobody_needs_does_not_meet_the_head() -> None:
    assert train_flops(PARAMETERS, tokens=10, scored_tokens=4) == 6 * (1000 * 10 + 200 * 4)
    assert train_flops(PARAMETERS, tokens=10, scored_tokens=0) == 6 * 1000 * 10


def test_mfu_is_the_share_of_what_the_devices_could_have_done() -> None:
    assert mfu(flops=3e15, seconds=2.0, peak_flops=5e15) == pytest.approx(0.3)
    assert mfu(flops=1e15, seconds=1.0, peak_flops=1e15) == 1.0


@pytest.mark.parametrize(
    ("flops", "seconds", "peak_flops"),
    [(0, 1, 1e12), (1e12, 0, 1e12), (1e12, -1, 1e12), (1e12, 1, 0), (math.nan, 1, 1e12), (1e12, math.nan, 1e12)],
)
def test_there_is_no_mfu_of_nothing(flops: float, seconds: float, peak_flops: float) -> None:
    assert mfu(flops, seconds, peak_flops) is None


def test_an_impossible_mfu_is_dropped_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(utilization, "_impossible", itertools.count())
    with caplog.at_level(logging.WARNING):
        assert [mfu(2e12, 1.0, 1e12), mfu(math.inf, 1.0, 1e12)] == [None, None]
    assert len(caplog.records) == 1
    assert "MFU of 2 " in caplog.text
