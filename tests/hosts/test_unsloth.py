"""Unsloth, whose trainers are compiled copies of TRL's under names of their own."""

from __future__ import annotations

import sys
from pathlib import Path

from akka_otel_callbacks.common.vocabulary import names
from tests.hosts.expected import check_grpo, check_rollouts, check_sft, check_tokens
from tests.hosts.host import HERE, HostRun, model, needs, run

pytestmark = needs("unsloth")
QUIET = {"UNSLOTH_DISABLE_STATISTICS": "1", "TORCHDYNAMO_DISABLE": "1"}


def _train(kind: str, folder: Path) -> HostRun:
    return run([sys.executable, str(HERE / "unsloth_training.py"), kind, model(folder)], folder, **QUIET)


def test_sft(tmp_path: Path) -> None:
    trained = _train("sft", tmp_path)
    check_sft(trained, "SFT")
    check_tokens(trained, names.SFT_STEP_TOKENS)


def test_grpo(tmp_path: Path) -> None:
    trained = _train("grpo", tmp_path)
    check_grpo(trained)
    check_rollouts(trained)
    check_tokens(trained, names.RL_STEP_TOKENS)
