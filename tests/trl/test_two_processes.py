"""A training in two processes: the first publishes the figures of both, and telemetry adds nothing between them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from akka_otel_callbacks.common import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Point
from tests.trl.trainings import REWARDS

ROOT = Path(__file__).parents[2]
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


@pytest.fixture(scope="module")
def found(sink: OtlpSink, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each rank wrote."""
    folder = tmp_path_factory.mktemp("ranks")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d"]
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
        "OTEL_METRIC_EXPORT_INTERVAL": "100000",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*torchrun, "--rdzv_endpoint=127.0.0.1:0", "-m", "tests.trl.two_processes", str(folder), tiny_model],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["GRPO", "SFT"])
def test_the_training_is_the_same_and_no_collective_is_added(kind: str, found: Found) -> None:
    for rank in found:
        plain, watched = rank[kind]["plain"], rank[kind]["watched"]
        assert sum(plain["collectives"].values()) > 0, "no collective was counted at all"
        assert watched["collectives"] == plain["collectives"]
        assert watched["parameters"] == plain["parameters"]
        assert [row.get("loss") for _, row in watched["rows"]] == [row.get("loss") for _, row in plain["rows"]]


def test_only_the_first_process_publishes(found: Found, sink: OtlpSink) -> None:
    resources = [point.resource for point in sink.metrics()] + [span.resource for span in sink.spans()]
    assert len({resource[names.ATTR_PROCESS_PID.name] for resource in resources}) == 1
    assert {resource[names.ATTR_SERVICE_INSTANCE_ID.name].rsplit(".", 1)[1] for resource in resources} == {"0"}
    assert [span.name for span in sink.spans()] == [names.SPAN_JOB.name] * 2


def last(sink: OtlpSink, metric: Any, of: Any = None) -> Point:
    return next(point for point in reversed(sink.series(metric)) if of in (None, *point.attributes.values()))


def test_grpo_figures_are_of_both_processes(found: Found, sink: OtlpSink) -> None:
    rows = {step: row for step, row in found[0]["GRPO"]["watched"]["rows"] if "loss" in row}
    scorings = [scoring for rank in found for scoring in rank["GRPO"]["watched"]["scorings"]]
    by_function = [
        [score for name, step, scores, _ in scorings if name == function.__name__ and step == 2 for score in scores]
        for function in REWARDS
    ]
    shares = np.array(by_function, float).T * np.array(list(REWARDS.values()))
    assert len(shares) == 16
    assert last(sink, names.RL_STEP_ROLLOUTS).value == 16
    assert last(sink, names.RL_STEP_REWARD).value == pytest.approx(np.nansum(shares, axis=1).mean(), rel=1e-5, abs=1e-7)
    assert last(sink, names.RL_STEP_REWARD_STD).value == pytest.approx(np.nansum(shares, axis=1).std(ddof=1), rel=1e-5)
    for index, function in enumerate(REWARDS):
        term = last(sink, names.RL_STEP_REWARD_TERM, function.__name__)
        assert term.value == pytest.approx(np.nan_to_num(shares[:, index]).mean(), rel=1e-5)
    assert last(sink, names.RL_ROLLOUT_REWARD, "total").histogram.count == 32
    row = rows[2]
    for metric, key in (
        (names.RL_STEP_ENTROPY, "entropy"),
        (names.RL_STEP_GRAD_NORM, "grad_norm"),
        (names.RL_STEP_COMPLETION_LENGTH, "completions/mean_length"),
        (names.RL_STEP_COMPLETION_LENGTH_MAX, "completions/max_length"),
    ):
        assert last(sink, metric).value == pytest.approx(row[key], rel=1e-6), key
    tokens = row["num_tokens"] - rows[1]["num_tokens"]
    assert last(sink, names.RL_STEP_TOKENS).value == tokens
    check_throughput(sink, names.RL_STEP_THROUGHPUT, names.RL_STEP_DURATION, tokens)
    assert last(sink, names.RL_STEP_COUNT).value == 2


def test_sft_figures_are_of_both_processes(found: Found, sink: OtlpSink) -> None:
    rows = {step: row for step, row in found[0]["SFT"]["watched"]["rows"] if "loss" in row}
    for metric, key in (
        (names.SFT_STEP_LOSS, "loss"),
        (names.SFT_STEP_GRAD_NORM, "grad_norm"),
        (names.SFT_STEP_LEARNING_RATE, "learning_rate"),
        (names.SFT_STEP_TOKEN_ACCURACY, "mean_token_accuracy"),
    ):
        assert last(sink, metric).value == pytest.approx(rows[2][key], rel=1e-6), key
    tokens = rows[2]["num_tokens"] - rows[1]["num_tokens"]
    assert last(sink, names.SFT_STEP_TOKENS).value == tokens
    check_throughput(sink, names.SFT_STEP_THROUGHPUT, names.SFT_STEP_DURATION, tokens)
    assert last(sink, names.SFT_STEP_COUNT).value == 2


def check_throughput(sink: OtlpSink, throughput: Any, duration: Any, tokens: float) -> None:
    """Tokens per second per process, of the second of two steps, whose duration only lies between the extremes."""
    steps = last(sink, duration).histogram
    assert steps.count == 2
    candidates = [tokens / seconds / 2 for seconds in (steps.min, steps.max)]
    assert any(last(sink, throughput).value == pytest.approx(candidate) for candidate in candidates)
