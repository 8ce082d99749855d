"""What a step of TRL leaves of its rollouts: scores and lengths."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from akka_otel_callbacks.trl.captures import Job
from akka_otel_callbacks.trl.log_rows import LogRows
from akka_otel_callbacks.trl.new_values import Marker
from akka_otel_callbacks.trl.rl import own_lengths
from akka_otel_callbacks.trl.rl_capture import RLCapture, Setting, scored
from akka_otel_callbacks.trl.vocabulary import rl_step
from benchmarks import loggers, stand_in

NAN = math.nan


@given(
    st.lists(st.tuples(st.floats(-100, 100, width=32) | st.just(NAN), st.just(NAN) | st.floats(-1, 1)), max_size=12),
    st.tuples(st.sampled_from([1.0, 0.0, -1.0, 0.5]), st.sampled_from([2.0, 1.0])),
)
def test_a_total_is_the_weighted_sum_of_the_scores_that_were_given(
    rows: list[tuple[float, float]], weights: tuple[float, float]
) -> None:
    """As TRL's `nansum`, but for a rollout that nothing scored, which it leaves out."""
    found = scored([(zip(*rows, strict=True), list(weights))], ["a", "b"], 2)
    expected = torch.tensor(rows, dtype=torch.float64).reshape(-1, 2) * torch.tensor(weights, dtype=torch.float64)
    totals = expected.nansum(dim=1).tolist()
    for total, summed, row in zip(found.totals, totals, rows, strict=True):
        assert total is None if all(map(math.isnan, row)) else total == pytest.approx(summed)
    assert found.groups == [at // 2 for at in range(len(rows))]


def test_weights_that_change_between_scorings_count_where_they_held() -> None:
    found = scored([([[1.0, 2.0]], [1.0]), ([[3.0, NAN]], [0.5])], ["a"], None)
    assert (found.totals, found.terms, found.groups) == ([1.0, 2.0, 1.5, None], {"a": [1.0, 2.0, 1.5, None]}, None)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_an_infinite_score_is_left_to_the_recorder(weight: float) -> None:
    """TRL drops the product of infinity and a weight of 0, which is NaN, as if no score had been given."""
    found = scored([([[math.inf], [1.0]], [weight, 1.0])], ["a", "b"], None)
    assert found.totals == ([math.inf] if weight else [1.0])


@pytest.fixture
def capture() -> RLCapture:
    rows = LogRows(rl_step, everything=False, nan_filter=True)
    return RLCapture(
        Job(devices=1, efficiency=None, rows=rows, alone=True),
        losses=[],
        setting=Setting(by_sequence=False, losses_add_up=False, terms=["a", "b"], weights={}, group=None),
    )


def test_a_capture_says_how_much_memory_its_masks_keep(capture: RLCapture) -> None:
    """The queue is bounded by it: masks may lie on a device and are kept until the step is translated."""
    mask = torch.ones(4, 500)
    capture.lengths = [3, 1, 2]
    capture.batches += [(torch.ones(4, 100), mask, None)] * 2
    assert capture.values_held == 3 * 3 + 1200


@pytest.mark.parametrize(
    "batches",
    [
        [(torch.ones(4, 100), torch.ones(4, 500), None)],
        [(torch.ones(4, 100), torch.ones(4, 500), None)] * 2 + [([[1, 2]], torch.ones(4, 500), None)],
        [(torch.ones(4, 100), [[1, 1]], None)] * 2,
        [(torch.ones(4, 100), torch.ones(4, 500), "a mask of somebody's")] * 2,
    ],
    ids=["one of two", "prompts", "mask", "own"],
)
def test_a_step_of_which_some_batch_is_not_known_is_counted_by_none(batches: list[Any], capture: RLCapture) -> None:
    capture.losses += [0.5, 0.25]
    capture.batches += batches
    recorder = Recorder(RLStep)
    capture.deliver(recorder)
    assert (capture._updated(), recorder.steps) == ([], 1)


class Kept(Recorder):
    """Keeps the steps as they come."""

    def __init__(self) -> None:
        super().__init__(RLStep)
        self.kept: list[Any] = []

    def record(self, step: Any) -> None:
        self.kept.append(step)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("adds_up", "accumulated", "expected"),
    [(False, 2, 1.5), (False, 0, 1.5), (True, 2, 3.0), (True, 0, 3.0)],
    ids=["mean", "mean, not said", "sum", "sum, not said"],
)
def test_a_policy_loss_is_put_together_as_the_step_s_loss_is(
    adds_up: bool, accumulated: int, expected: float, known: bool, capture: RLCapture
) -> None:
    """Also of batches in another form than TRL's own, and by a host that does not say how many there are."""
    capture.setting = replace(capture.setting, losses_add_up=adds_up)
    capture.batches += [(torch.ones(4, 100) if known else "text", torch.ones(4, 500), None)] * 2
    marker = Marker(lambda key: True)
    capture.marks = marker.mark({}), marker.mark({"policy_loss": [1.0, 2.0]})
    capture.accumulated = accumulated
    capture.deliver(recorder := Kept())
    assert [step.policy_loss for step in recorder.kept] == [expected]


@pytest.mark.parametrize("form", [torch.Tensor.numpy, lambda scores: scores], ids=["array", "tensor"])
def test_scores_count_in_whatever_kind_of_array_they_come(form: Any, capture: RLCapture) -> None:
    capture.scores = ((form(torch.tensor([[1.0, 2.0], [0.0, 4.0]])), [1.0, 0.5]),)
    capture.deliver(recorder := Kept())
    assert [(step.reward, step.reward_term["b"]) for step in recorder.kept] == [(2.0, 1.5)]


# -- lengths


COMPLETIONS = [[5, 6, 7], [5], [9, 9]]


@pytest.mark.parametrize(
    "result",
    [
        ([[1]] * 3, COMPLETIONS, [object()] * 3),
        ([[1]] * 3, COMPLETIONS, 6, None, {}),
        ([[1]] * 3, COMPLETIONS, None, COMPLETIONS, None, {}, None, []),
        ([[1]] * 3, COMPLETIONS, ["a", "b", "c"]),
        ([[1]] * 3, COMPLETIONS),
        ([[1]] * 3, COMPLETIONS, [[-0.5, -0.1, -2.0], [-1.0], [-0.1, -0.3]]),
    ],
    ids=["rloo", "0.24", "1.16", "texts", "two", "logprobs"],
)
def test_lengths_of_what_each_version_generates(result: tuple[Any, ...]) -> None:
    assert own_lengths(result) == [3, 1, 2]


def test_with_tools_only_the_model_s_own_tokens_count() -> None:
    assert own_lengths(([[1]] * 3, COMPLETIONS, [[1, 0, 1], [1], [1, 0]], None, None, {}, None, [])) == [2, 1, 1]


def test_a_loop_of_a_host_s_that_does_not_say_how_many_micro_batches_it_accumulates(tmp_path: Path) -> None:
    trainer = stand_in.own_class()(tmp_path)
    del trainer.current_gradient_accumulation_steps
    guard.failures.clear()
    with loggers.ours(tmp_path) as callback:
        assert isinstance(callback, AkkaTelemetryCallback)
        stand_in.begin(trainer, [callback.attach(trainer)])
        stand_in.step(trainer, [callback])
        step = callback._session.loop(trainer.state).step  # type: ignore[union-attr]
    assert (len(step.batches), step.accumulated) == (stand_in.MICRO_BATCHES, 1)
    assert not guard.failures


def test_what_follows_a_step_is_no_part_of_it(tmp_path: Path) -> None:
    """A callback that leaves at the end of a step is told of a few more calls. The translator has the step by then."""
    trainer = stand_in.own_class()(tmp_path)
    with loggers.ours(tmp_path) as callback:
        assert isinstance(callback, AkkaTelemetryCallback)
        stand_in.begin(trainer, [callback.attach(trainer)])
        stand_in.step(trainer, [callback])
        step = callback._session.loop(trainer.state).step  # type: ignore[union-attr]
        trainer.callback_handler.callbacks.remove(callback)
        trainer._norm = torch.tensor(2.5)
        trainer.training_step(trainer.model, None)
        trainer._get_grad_norm(trainer.model)
    assert len(step.losses) == len(step.batches) == stand_in.MICRO_BATCHES
    assert step.grad_norm == 1.5
