"""The reward figures of a step against numpy, and the names and lengths that they come with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.recorder import Recorder
from akka_otel_callbacks.common.step import RLStep
from akka_otel_callbacks.trl.rl import distinct, own_lengths, score

finite = st.floats(-1e6, 1e6, width=32)
anything = st.floats()


@st.composite
def scorings(draw: Any, values: st.SearchStrategy[float]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """Scores [rollouts, terms] and weights of one to three scorings, and the size of a group."""
    terms, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        rollouts = group * draw(st.integers(1, 3))
        score_or_none = st.one_of(values, st.just(math.nan))
        rows = draw(
            st.lists(st.lists(score_or_none, min_size=terms, max_size=terms), min_size=rollouts, max_size=rollouts)
        )
        weights = draw(st.lists(st.sampled_from([1.0, 0.0, -1.0, 0.5, 2.0]), min_size=terms, max_size=terms))
        found.append((np.array(rows), np.array(weights)))
    return found, group


def scored(found: list[tuple[np.ndarray, np.ndarray]], group: int) -> tuple[RLStep, list[str]]:
    step = RLStep()
    names = [f"term{index}" for index in range(len(found[0][1]))]
    score(step, [(rows.tolist(), weights.tolist()) for rows, weights in found], names, group)
    return step, names


@given(scorings(finite))
def test_reward_figures_are_those_of_numpy(given_scorings: tuple[list[tuple[np.ndarray, np.ndarray]], int]) -> None:
    found, group = given_scorings
    step, names = scored(found, group)
    shares = np.concatenate([rows * weights for rows, weights in found])
    of_any = ~np.isnan(shares).all(axis=1)
    assert step.rollouts == of_any.sum()
    if not of_any.any():
        assert (step.reward, step.reward_std, step.reward_zero_ratio, step.reward_term) == (None, None, None, None)
        return
    shares = shares[of_any]
    totals = np.nansum(shares, axis=1)
    scale = max(1.0, float(np.abs(np.nan_to_num(shares)).max()))
    close = {"rel": 1e-9, "abs": 1e-9 * scale}
    assert step.reward == pytest.approx(totals.mean(), **close)
    assert step.reward_std == pytest.approx(totals.std(ddof=1) if len(totals) > 1 else 0.0, **close)
    assert step.reward_zero_ratio == (totals == 0).mean()
    assert step.rollout_reward["total"] == pytest.approx(totals.tolist(), **close)
    for name, column in zip(names, shares.T, strict=True):
        given_shares = column[~np.isnan(column)]
        assert step.rollout_reward[name] == given_shares.tolist()
        if len(given_shares):
            filled = np.nan_to_num(column)
            assert step.reward_term[name] == pytest.approx(filled.mean(), **close)
            assert step.reward_term_std[name] == pytest.approx(filled.std(ddof=1) if len(filled) > 1 else 0.0, **close)
        else:
            assert name not in step.reward_term
    assert sum(step.reward_term[name] for name in names if name in step.reward_term) == pytest.approx(
        step.reward_term["total"], **close
    ), "the terms' shares sum to the total"


@given(scorings(st.sampled_from([0.0, 1.0, 0.25])))
def test_groups_without_variance_are_those_of_torch(
    given_scorings: tuple[list[tuple[np.ndarray, np.ndarray]], int],
) -> None:
    found, group = given_scorings
    step, _ = scored(found, group)
    flat = []
    for rows, weights in found:
        for one in torch.tensor(rows * weights).split(group):
            totals = one[~one.isnan().all(dim=1)].nansum(dim=1)
            if len(totals):
                flat.append(bool((totals == totals[0]).all()))
    assert step.frac_reward_zero_std == (sum(flat) / len(flat) if flat else None)


@given(scorings(anything))
def test_scores_of_any_size_never_fail(given_scorings: tuple[list[tuple[np.ndarray, np.ndarray]], int]) -> None:
    found, group = given_scorings
    step, _ = scored(found, group)
    recorder = Recorder(RLStep, lambda *_: None)
    recorder.record(step)
    shown = [value for points in recorder.board._points.values() for value, _ in points]
    assert all(map(math.isfinite, shown))


def test_without_a_known_group_the_logged_share_stands() -> None:
    step = RLStep(frac_reward_zero_std=0.25)
    score(step, [([[1.0], [1.0]], [1.0])], ["term"], None)
    assert step.frac_reward_zero_std == 0.25


# -- names


def test_a_name_that_comes_again_is_numbered() -> None:
    assert distinct(["f", "g", "f", "f"]) == ["f", "g", "f#2", "f#3"]
    assert distinct(["total", "f#2", "f", "f"]) == ["total#2", "f#2", "f", "f#3"]


@given(st.lists(st.one_of(st.sampled_from(["f", "f#2", "f#3", "total", "total#2"]), st.text(max_size=3)), max_size=8))
def test_names_differ_from_each_other_and_from_total(terms: list[str]) -> None:
    labels = distinct(terms)
    assert len({*labels, "total"}) == len(terms) + 1
    for label, term in zip(labels, terms, strict=True):
        assert label == term or label.startswith(f"{term}#")


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
