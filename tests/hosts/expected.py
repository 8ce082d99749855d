"""What must hold of a run in any host: its figures are those of the host's own log, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from tests.hosts.host import ROLLOUTS, STEPS, HostRun

SFT_LOGGED: Mapping[str, Any] = {
    "loss": names.SFT_STEP_LOSS,
    "grad_norm": names.SFT_STEP_GRAD_NORM,
    "learning_rate": names.SFT_STEP_LEARNING_RATE,
}
RL_LOGGED: Mapping[str, Any] = {
    "grad_norm": names.RL_STEP_GRAD_NORM,
    "learning_rate": names.RL_STEP_LEARNING_RATE,
    "reward": names.RL_STEP_REWARD,
    "kl": names.RL_STEP_KL,
    "entropy": names.RL_STEP_ENTROPY,
    "frac_reward_zero_std": names.RL_STEP_FRAC_REWARD_ZERO_STD,
    "completions/mean_length": names.RL_STEP_COMPLETION_LENGTH,
    "completions/min_length": names.RL_STEP_COMPLETION_LENGTH_MIN,
    "completions/max_length": names.RL_STEP_COMPLETION_LENGTH_MAX,
    "completions/clipped_ratio": names.RL_STEP_COMPLETION_CLIPPED_RATIO,
}


def check_logged(run: HostRun, logged: Mapping[str, Any]) -> None:
    """Every figure that the host logs is published, and equal."""
    for key, metric in logged.items():
        if values := run.logged(key):
            assert run.published(metric) == pytest.approx(values, rel=1e-5, abs=1e-7), key


def check_sft(run: HostRun, method: str | None, logged: Mapping[str, Any] = SFT_LOGGED) -> None:
    assert len(run.rows) == STEPS
    assert run.method == method
    assert run.published(names.SFT_STEP_COUNT)[-1] == STEPS
    assert not run.names_like(names.RL_STEP_COUNT)
    check_logged(run, logged)


def check_grpo(run: HostRun, logged: Mapping[str, Any] = RL_LOGGED) -> None:
    assert len(run.rows) == STEPS
    assert run.method == "GRPO"
    assert run.published(names.RL_STEP_COUNT)[-1] == STEPS
    assert not run.names_like(names.SFT_STEP_COUNT)
    check_logged(run, logged)


def check_rollouts(run: HostRun) -> None:
    """What is computed from the rollouts themselves."""
    assert run.published(names.RL_STEP_ROLLOUTS) == [ROLLOUTS] * STEPS
    for term in ("letters", "total"):
        assert run.published(names.RL_STEP_REWARD_TERM, term) == pytest.approx(run.logged("reward"), abs=1e-6)
        rewards = run.distribution(names.RL_ROLLOUT_REWARD, term)
        assert rewards is not None
        assert rewards.count == ROLLOUTS * STEPS
    lengths = run.distribution(names.RL_ROLLOUT_COMPLETION_LENGTH)
    assert lengths is not None
    assert lengths.count == ROLLOUTS * STEPS
    assert lengths.mean == pytest.approx(sum(run.logged("completions/mean_length")) / STEPS)


def check_tokens(run: HostRun, metric: Any, total: str = "num_tokens") -> None:
    assert list(accumulate(run.published(metric))) == run.logged(total)
