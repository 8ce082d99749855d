"""What a step's rollouts say, against figures computed in another way."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.vocabulary.step import RLStep
from akka_otel_callbacks.verl.driver.limits import Limits
from akka_otel_callbacks.verl.driver.rollout_figures import set_figures
from akka_otel_callbacks.verl.driver.rollouts import Rollouts, columns

finite = st.floats(-1e6, 1e6)


def batch(scores: list[float], **columns: Any) -> Rollouts:
    """Rollouts as numpy columns, ten tokens long where nothing else is said."""
    given = {"lengths": [10.0] * len(scores), **columns}
    own = given.pop("own_lengths", given["lengths"])
    return Rollouts(
        scores=np.array(scores), lengths=np.array(given.pop("lengths")), own_lengths=np.array(own, dtype=int), **given
    )


def figures(*batches: Rollouts, max_length: float | None = 24, **others: Any) -> RLStep:
    step = RLStep(reward=-1.0, completion_length=-1.0)
    set_figures(step, batches, Limits(max_length, **others))
    return step


def test_rewards_of_one_step() -> None:
    step = figures(batch([0.0, 1.0, 0.5, 0.5]))
    assert step.rollouts == 4
    assert step.reward == 0.5
    assert step.reward_std == pytest.approx(np.std([0.0, 1.0, 0.5, 0.5], ddof=1))
    assert step.reward_zero_ratio == 0.25
    assert step.rollout_reward == {"total": [0.0, 1.0, 0.5, 0.5]}
    assert step.reward_term == {"total": 0.5}


def test_without_rollouts_the_log_stands() -> None:
    assert (figures().reward, figures().completion_length) == (-1.0, -1.0)


def test_every_numeric_term_and_nothing_else() -> None:
    infos = [
        {"score": 0.7, "digit": 1.0, "steps": 3, "acc": True, "np_acc": np.bool_(True), "note": "text", "list": [1]},
        {"score": 0.2, "digit": 0.5, "steps": 5, "acc": False, "np_acc": np.bool_(False), "note": "", "list": []},
    ]
    step = figures(batch([0.7, 0.2], terms=columns(infos)))
    assert step.rollout_reward == {
        "total": [0.7, 0.2],
        "digit": [1.0, 0.5],
        "steps": [3.0, 5.0],
        "acc": [1.0, 0.0],
        "np_acc": [1.0, 0.0],
    }
    means = {"total": pytest.approx(0.45), "digit": 0.75, "steps": 4.0, "acc": 0.5, "np_acc": 0.5}
    assert step.reward_term == means
    assert step.reward_term_std["steps"] == pytest.approx(statistics.stdev([3, 5]))


def test_score_is_a_term_of_its_own_where_the_reward_manager_adds_to_it() -> None:
    infos = [{"score": 1.0, "overlong_reward": -0.5, "overlong": True}, {"score": 0.0, "overlong_reward": 0.0}]
    step = figures(batch([0.5, 0.0], terms=columns(infos)))
    assert step.rollout_reward == {
        "total": [0.5, 0.0],
        "score": [1.0, 0.0],
        "overlong_reward": [-0.5, 0.0],
        "overlong": [1.0],
    }


def test_a_term_that_some_rollouts_lack_adds_nothing_to_them() -> None:
    step = figures(batch([2.0, 4.0], terms=columns([{"a": 2.0}, {"b": 4.0}])))
    assert step.reward_term == {"total": 3.0, "a": 1.0, "b": 2.0}
    assert step.rollout_reward == {"total": [2.0, 4.0], "a": [2.0], "b": [4.0]}


def test_a_term_of_some_batches_only() -> None:
    parts = [batch([2.0], terms={"a": [2.0]}), batch([4.0], terms={"b": [4.0]}), batch([6.0], terms={"a": [6.0]})]
    assert figures(*parts).reward_term == {"total": 4.0, "a": pytest.approx(8 / 3), "b": pytest.approx(4 / 3)}


def test_terms_whose_names_are_no_texts_have_labels() -> None:
    assert figures(batch([1.0], terms={1: [2.0], "1": [3.0]})).rollout_reward == {
        "total": [1.0],
        "1": [2.0],
        "1#2": [3.0],
    }


def test_a_term_called_total_does_not_take_the_totals_place() -> None:
    step = figures(batch([1.0], terms={"total": [5.0]}))
    assert step.reward_term == {"total": 1.0, "total#2": 5.0}


def test_groups_without_variance() -> None:
    groups = ["a", "a", "b", "b", "c", "c", "d", "d"]
    step = figures(batch([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.3, 0.2], groups=groups))
    assert step.frac_reward_zero_std == 0.5


def test_groups_of_one_say_nothing_about_variance() -> None:
    assert figures(batch([1.0, 0.0], groups=["a", "b"])).frac_reward_zero_std is None
    assert figures(batch([1.0, 1.0])).frac_reward_zero_std is None


def test_truncated_and_terminated() -> None:
    step = figures(batch([0.0] * 4, lengths=[24.0, 24.0, 9.0, 5.0]))
    assert step.completion_clipped_ratio == 0.5
    assert step.completion_length_terminated == 7.0
    assert (step.completion_length, step.completion_length_max, step.completion_length_min) == (15.5, 24, 5)


def test_all_truncated_have_no_terminated_length() -> None:
    assert figures(batch([0.0], lengths=[24.0])).completion_length_terminated is None


def test_without_a_known_maximum_nothing_is_said_of_truncation() -> None:
    step = figures(batch([0.0], lengths=[24.0]), max_length=None)
    assert (step.completion_clipped_ratio, step.completion_length_terminated) == (None, None)


def test_the_rollout_servers_window_cuts_before_the_maximum() -> None:
    """vLLM stops where prompt and completion fill `max_model_len`, whatever the completion may have."""
    lengths, prompts = [24.0, 14.0, 13.0, 4.0, 5.0], np.array([2, 16, 16, 26, 26])
    step = figures(batch([0.0] * 5, lengths=lengths, prompt_lengths=prompts), window=30)
    assert step.completion_clipped_ratio == 0.8
    assert step.completion_length_terminated == 13.0
    assert figures(batch([0.0] * 5, lengths=lengths, prompt_lengths=prompts)).completion_clipped_ratio == 0.2


def test_without_the_prompts_lengths_a_window_says_nothing() -> None:
    assert figures(batch([0.0]), window=30).completion_clipped_ratio is None


def test_a_tools_response_that_does_not_fit_cuts_a_shorter_completion() -> None:
    tools = [(1, 0, True), (1, 0, False), None, (0, 0, False)]
    step = figures(batch([0.0] * 4, lengths=[9.0, 8.0, 24.0, 24.0], tools=tools), has_tools=True)
    assert (step.completion_clipped_ratio, step.completion_length_terminated) == (0.75, 8.0)


def test_where_nobody_counted_the_tools_nothing_is_said_of_truncation() -> None:
    for tools in (None, [None], [(1, 0)]):
        step = figures(batch([0.0], tools=tools), has_tools=True)
        assert (step.completion_clipped_ratio, step.completion_length_terminated) == (None, None)
        assert step.completion_length == 10.0


def test_rejected_tokens_were_generated_all_the_same() -> None:
    """verl's rejection sampling takes tokens out of the mask that tells the model's own ones."""
    rows = batch([0.0] * 2, lengths=[9.0, 8.0], own_lengths=[0, 8])
    assert figures(rows, rejects=True).rollout_completion_length == [9, 8]
    hidden = figures(rows, rejects=True, has_tools=True)
    assert (hidden.completion_length, hidden.completion_length_max, hidden.rollout_completion_length) == (
        None,
        None,
        [],
    )


def test_tool_responses_fill_the_window_but_are_no_tokens_of_the_completion() -> None:
    step = figures(batch([0.0, 0.0], lengths=[24.0, 20.0], own_lengths=[14, 20]))
    assert step.rollout_completion_length == [14, 20]
    assert step.completion_length == 17.0
    assert step.completion_clipped_ratio == 0.5
    assert step.completion_length_terminated == 20.0


def test_an_aborted_rollout_is_no_completion() -> None:
    step = figures(batch([0.0, 1.0], lengths=[0.0, 8.0], groups=["a", "a"], terms={"x": [9.0, 2.0]}))
    assert (step.rollouts, step.reward, step.reward_zero_ratio) == (1, 1.0, 0.0)
    assert step.rollout_completion_length == [8]
    assert step.reward_term == {"total": 1.0, "x": 2.0}


def test_where_all_were_aborted_there_is_a_count_and_nothing_else() -> None:
    step = figures(batch([0.0, 0.0], lengths=[0.0, 0.0]))
    assert step.rollouts == 0
    assert (step.reward, step.completion_length, step.completion_length_max) == (None, None, None)
    assert not step.rollout_completion_length


def test_of_several_outputs_of_a_session_the_last_is_scored_and_all_are_completions() -> None:
    step = figures(
        batch(
            [1.0, 1.0, 0.0],
            lengths=[5.0, 7.0, 9.0],
            last_of_session=[False, True, True],
            groups=["a", "a", "a"],
            tools=[None, (2, 1), (0, 0)],
        )
    )
    assert (step.rollouts, step.reward) == (2, 0.5)
    assert step.rollout_completion_length == [5, 7, 9]
    assert step.tool_calls == 1.0
    assert step.tool_failure_ratio == 0.5


def test_tools() -> None:
    step = figures(batch([0.0] * 4, tools=[(2, 0), (1, 1), (0, 0), None]))
    assert step.tool_calls == 1.0
    assert step.tool_failure_ratio == pytest.approx(1 / 3)


def test_tools_without_a_call_have_no_failure_ratio() -> None:
    step = figures(batch([0.0], tools=[(0, 0)]))
    assert (step.tool_calls, step.tool_failure_ratio) == (0.0, None)


def test_without_tools_nothing_is_said_of_them() -> None:
    assert figures(batch([0.0])).tool_calls is None
    assert figures(batch([0.0], tools=[None])).tool_calls is None


def test_several_batches_of_a_step_are_one() -> None:
    step = figures(
        batch([1.0, 0.0], groups=["a", "a"], terms={"x": [1.0, 3.0]}),
        batch([0.5, 0.5], groups=["b", "b"], terms={"x": [5.0, 7.0]}),
    )
    assert (step.rollouts, step.reward, step.frac_reward_zero_std) == (4, 0.5, 0.5)
    assert step.reward_term["x"] == 4.0


@pytest.mark.parametrize("scores", [[math.nan, 1.0, 0.0, 1.0], [1.0, math.nan, 1.0, 0.0], [1.0, 0.0, math.inf, 1.0]])
def test_a_score_that_is_not_finite_is_no_score(scores: list[float]) -> None:
    step = figures(batch(scores, groups=["a", "a", "b", "b"]))
    assert (step.rollouts, step.reward, step.reward_zero_ratio) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert step.frac_reward_zero_std == 0.5


def test_a_pair_of_which_one_was_aborted_is_judged_by_the_other() -> None:
    step = figures(batch([1.0, 0.0, 0.0, 0.5], lengths=[9.0, 0.0, 9.0, 9.0], groups=["a", "a", "b", "b"]))
    assert step.frac_reward_zero_std == 0.5


@given(st.lists(st.tuples(finite, st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=40), st.integers(1, 30))
def test_any_batch_against_numpy(rows: list[tuple[float, int, int]], max_length: int) -> None:
    scores, lengths, groups = map(list, zip(*rows, strict=True))
    step = figures(
        batch(scores, lengths=[float(length) for length in lengths], groups=[f"g{group}" for group in groups]),
        max_length=max_length,
    )
    kept = np.array(lengths) > 0
    rewards, tokens = np.array(scores)[kept], np.array(lengths)[kept]
    assert step.rollouts == len(rewards)
    if not len(rewards):
        return
    assert step.reward == pytest.approx(rewards.mean(), abs=1e-9)
    assert step.reward_zero_ratio == pytest.approx((rewards == 0).mean())
    assert step.completion_length == pytest.approx(tokens.mean())
    assert step.completion_clipped_ratio == pytest.approx((tokens >= max_length).mean())
    ended = tokens[tokens < max_length]
    assert step.completion_length_terminated == (pytest.approx(ended.mean()) if len(ended) else None)
    stds = [
        np.ptp(rewards[np.array(groups)[kept] == group])
        for group in set(groups)
        if (np.array(groups) == group).sum() > 1 and (np.array(groups)[kept] == group).any()
    ]
    assert step.frac_reward_zero_std == (pytest.approx(np.mean(np.array(stds) <= 1e-8)) if stds else None)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.floats() | st.text() | st.none() | st.booleans()), max_size=8))
def test_any_terms(infos: list[dict[str, Any]]) -> None:
    step = figures(batch([1.0] * len(infos), terms=columns(infos)))
    for term in step.rollout_reward or {}:
        assert all(isinstance(value, float) for value in step.rollout_reward[term])
    if infos:
        assert step.rollout_reward["total"] == [1.0] * len(infos)
