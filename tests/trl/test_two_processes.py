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

from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Point
from tests.trl.expected import LOSS_DIGITS
from tests.trl.trainings import REWARDS

ROOT = Path(__file__).parents[2]
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def sink(form: str) -> Iterator[OtlpSink]:
    with otlp_sink() as opened:
        yield opened


@pytest.fixture(scope="module", params=["replicated", "sharded"])
def form(request: pytest.FixtureRequest) -> str:
    """How the model is on the two processes: by DDP or by FSDP2."""
    return str(request.param)


@pytest.fixture(scope="module")
def found(form: str, sink: OtlpSink, tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
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
        [*torchrun, "--rdzv_endpoint=127.0.0.1:0", "-m", "tests.trl.two_processes", str(folder), tiny_model, form],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("kind", ["GRPO", "SFT"])
def test_the_training_is_the_same_and_no_collective_is_added(kind: str, form: str, found: Found) -> None:
    for rank in found:
        plain, watched = rank[kind]["plain"], rank[kind]["watched"]
        assert ("FSDP" in watched["class"]) == (form == "sharded")
        assert sum(plain["collectives"].values()) > 0, "no collective was counted at all"
        assert watched["collectives"] == plain["collectives"]
        assert watched["parameters"] == plain["parameters"]
        assert [row.get("loss") for _, row in watched["rows"]] == [row.get("loss") for _, row in plain["rows"]]


def test_only_the_first_process_publishes(found: Found, sink: OtlpSink) -> None:
    resources = [point.resource for point in sink.metrics()] + [span.resource for span in sink.spans()]
    assert len({resource[names.ATTR_PROCESS_PID.name] for resource in resources}) == 1
    assert {resource[names.ATTR_SERVICE_INSTANCE_ID.name].rsplit(".", 1)[1] for resource in resources} == {"0"}
    assert [span.name for span in sink.spans()].count(names.SPAN_JOB.name) == 2


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


# -- losses: each process knows its own, and the trainer's log their mean


def of_all(found: Found, case: int, step: int) -> float:
    """The loss of a step: the mean over the processes of the sums over their micro-batches."""
    return float(np.mean([np.sum(rank["losses"][case]["losses"][str(step)]) for rank in found]))


def test_a_loss_is_that_of_all_processes(found: Found) -> None:
    published = found[0]["losses"][0]
    assert {event for event, *_ in published["shown"]} >= {"step", "log"}
    for event, step, loss, norm, *nonfinite in published["shown"]:
        if event == "log":
            assert loss == pytest.approx(of_all(found, 0, step), rel=1e-5, abs=LOSS_DIGITS)
            assert norm == pytest.approx(published["row_norms"][str(step)], rel=1e-5)
        else:
            assert loss is None, "this process does not know it yet"
        assert nonfinite == [0, 0]
    assert not found[1]["losses"][0]["shown"]


def replicated(form: str) -> None:
    if form != "replicated":
        pytest.skip("the rule is the same")


def test_an_intervals_loss_is_shown_where_it_is_logged_and_on_no_other_step(form: str, found: Found) -> None:
    replicated(form)
    for event, step, loss, norm, *_ in found[0]["losses"][1]["shown"]:
        mean = np.mean([of_all(found, 1, step - 1), of_all(found, 1, step)]) if event == "log" else None
        assert loss == (pytest.approx(mean, rel=1e-5, abs=LOSS_DIGITS) if mean is not None else None)
        assert norm is not None, "of every step, whatever is logged"


@pytest.mark.parametrize(
    ("case", "absent", "counted"),
    [
        pytest.param(2, {2}, [1, 1], id="of the first process"),
        pytest.param(3, {2}, [0, 1], id="of the second, which only the common norm shows"),
        pytest.param(4, {2}, [1, 1], id="within an interval"),
        pytest.param(5, {2, 3, 4}, [1, 1], id="of the second, not filtered: transformers logs NaN from then on"),
    ],
)
def test_no_logged_mean_stands_in_for_a_nan(
    case: int, absent: set[int], counted: list[int], form: str, found: Found
) -> None:
    replicated(form)
    shown = found[0]["losses"][case]["shown"]
    logged = {step: loss for event, step, loss, *_ in shown if event == "log"}
    assert {step for step, loss in logged.items() if loss is None} == absent
    every = len(logged) == 4
    for step, loss in logged.items():
        if step not in absent:
            wanted = (
                of_all(found, case, step) if every else np.mean([of_all(found, case, at) for at in (step - 1, step)])
            )
            assert loss == pytest.approx(wanted, rel=1e-5, abs=LOSS_DIGITS)
    assert shown[-1][4:] == counted
