"""A step's reward figures against numpy, and the same from what either engine collects."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

np: Any = pytest.importorskip("numpy", reason="the figures are compared with numpy's")
pytest.importorskip("transformers", reason="TRL's path is one of the two")

from akka_otel_callbacks.common.recording.recorder import Recorder  # noqa: E402
from akka_otel_callbacks.common.recording.rewards import ScoredRollouts, distinct, set_rewards  # noqa: E402
from akka_otel_callbacks.common.vocabulary import names  # noqa: E402
from akka_otel_callbacks.common.vocabulary.step import RLStep  # noqa: E402
from akka_otel_callbacks.trl.rl_capture import scored  # noqa: E402
from akka_otel_callbacks.verl.driver.limits import Limits  # noqa: E402
from akka_otel_callbacks.verl.driver.rollout_figures import set_figures  # noqa: E402
from akka_otel_callbacks.verl.driver.rollouts import Rollouts, columns  # noqa: E402

NAN, INF = math.nan, math.inf
FIGURES = (
    "rollouts",
    "reward",
    "reward_std",
    "reward_term",
    "reward_term_std",
    "reward_zero_ratio",
    "frac_reward_zero_std",
    "rollout_reward",
)


def figures(totals: list[float | None], **others: Any) -> RLStep:
    step = RLStep()
    set_rewards(step, ScoredRollouts(totals, **others))
    return step


def test_what_is_not_finite_is_in_no_figure_and_counted_by_term() -> None:
    step = figures(
        [NAN, 1.0, 1.0, 0.0, None],
        terms={"a": [0.5, INF, 1.0, None, NAN], "b": [None, None, None, 3.0, 4.0]},
        groups=["x", "x", "y", "y", "y"],
    )
    assert (step.rollouts, step.reward, step.reward_zero_ratio) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert step.frac_reward_zero_std == 0.5  # x is judged by its one scored rollout
    assert step.reward_term == {"a": pytest.approx(1 / 3), "b": 1.0, "total": pytest.approx(2 / 3)}
    term, records, step.number = names.ATTR_RL_TERM.name, [], 1
    recorder = Recorder(RLStep, records.append)
    recorder.record(step)
    counted = [(labels[term], value) for _, labels, values in records[0].distributions for value in values]
    assert sorted(counted) == [("a", 1.0), ("b", 3.0), ("total", 0.0), ("total", 1.0), ("total", 1.0)]
    broken = {dict(labels).get(term): count for count, labels in recorder.nonfinite_points() if count}
    assert broken == {"total": 1, "a": 1}, "the term of an unscored rollout says nothing"


@pytest.mark.parametrize("order", [[NAN, 1.0, 2.0, 2.0], [1.0, NAN, 2.0, 2.0], [2.0, 2.0, NAN, 1.0]])
def test_the_order_of_the_rows_does_not_matter(order: list[float | None]) -> None:
    step = figures(order, groups=["a", "a", "b", "b"])
    assert (step.frac_reward_zero_std, step.rollouts, step.reward) == (1.0, 3, pytest.approx(5 / 3))


def test_where_nothing_was_scored_there_is_a_count_and_nothing_else() -> None:
    step = figures([None, NAN], terms={"a": [1.0, 1.0]}, groups=["x", "x"])
    shown = {name: getattr(step, name) for name in FIGURES if name != "rollout_reward"}
    assert {name for name, value in shown.items() if value is not None} == {"rollouts"}
    assert step.rollouts == 0


def test_a_group_is_flat_within_trls_tolerance() -> None:
    assert figures([0.5, 0.5 + 1e-9], groups="aa").frac_reward_zero_std == 1.0
    assert figures([0.5, 0.5 + 1e-7], groups="aa").frac_reward_zero_std == 0.0
    assert figures([1e9 + 0.1] * 3, groups="aaa").frac_reward_zero_std == 1.0


def test_a_prompt_with_one_rollout_has_no_spread_by_design() -> None:
    assert figures([1.0, 0.0], groups="ab").frac_reward_zero_std is None
    assert figures([1.0, 0.0, None], groups="abb").frac_reward_zero_std == 1.0


def test_without_known_groups_the_logged_share_stands() -> None:
    step = RLStep(frac_reward_zero_std=0.25)
    set_rewards(step, ScoredRollouts([1.0, 1.0]))
    assert step.frac_reward_zero_std == 0.25


# -- both engines

shares = st.sampled_from([None, 0.0, 1.0, 0.25, -0.5, 1e9]) | st.floats(-100, 100, width=32)


@st.composite
def rollouts(draw: Any) -> tuple[list[list[float | None]], int]:
    """Each rollout's shares, None for none, and how many rollouts a prompt has."""
    terms, group = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    count = group * draw(st.integers(1, 5))
    return draw(st.lists(st.lists(shares, min_size=terms, max_size=terms), min_size=count, max_size=count)), group


def total(row: list[float | None]) -> float | None:
    given = [share for share in row if share is not None]
    return sum(given) if given else None


def on_trl(rows: list[list[float | None]], labels: list[str], group: int) -> RLStep:
    scores = [[NAN if share is None else share for share in row] for row in rows]
    step = RLStep()
    set_rewards(step, scored([(zip(*scores, strict=True), [1.0] * len(labels))], labels, group))
    return step


def on_verl(rows: list[list[float | None]], labels: list[str], group: int, batches: int, broken: bool) -> RLStep:
    """verl has no word for a rollout that nothing scored: it was aborted, or its score is broken."""
    step, found, size = RLStep(), [], math.ceil(len(rows) / batches)
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        lengths = np.array([8.0 if total(row) is not None or broken else 0.0 for row in part])
        given = [{label: s for label, s in zip(labels, row, strict=True) if s is not None} for row in part]
        found.append(
            Rollouts(
                scores=np.array([NAN if broken and total(row) is None else total(row) or 0.0 for row in part]),
                lengths=lengths,
                own_lengths=lengths.astype(int),
                groups=[f"uid{(at + row) // group}" for row in range(len(part))],
                terms=columns(given),
            )
        )
    set_figures(step, found, Limits())
    return step


@given(rollouts(), st.integers(1, 3), st.booleans())
def test_both_engines_give_the_same_figures(
    drawn: tuple[list[list[float | None]], int], batches: int, broken: bool
) -> None:
    rows, group = drawn
    labels = [f"term{index}" for index in range(len(rows[0]))]
    trl, verl = on_trl(rows, labels, group), on_verl(rows, labels, group, batches, broken)
    recorded = {term: [*filter(math.isfinite, values)] for term, values in (verl.rollout_reward or {}).items()}
    verl.rollout_reward = {term: values for term, values in recorded.items() if values}  # the recorder counts the rest
    for name in FIGURES:
        assert getattr(trl, name) == getattr(verl, name), name


@given(rollouts())
def test_figures_are_those_of_numpy(drawn: tuple[list[list[float | None]], int]) -> None:
    rows, group = drawn
    labels = [f"term{index}" for index in range(len(rows[0]))]
    step = on_trl(rows, labels, group)
    given_shares = np.array(rows, dtype=float)
    is_scored = ~np.isnan(given_shares).all(axis=1)
    assert step.rollouts == is_scored.sum()
    totals = np.nansum(given_shares, axis=1)
    if is_scored.any():
        close = {"rel": 1e-9, "abs": 1e-9 * max(1.0, float(np.abs(np.nan_to_num(given_shares)).max()))}
        assert step.reward == pytest.approx(totals[is_scored].mean(), **close)
        assert step.reward_std == pytest.approx(totals[is_scored].std(ddof=1) if step.rollouts > 1 else 0.0, **close)
        assert step.reward_zero_ratio == (totals[is_scored] == 0).mean()
        assert step.rollout_reward["total"] == pytest.approx(totals[is_scored].tolist(), **close)
        for label, column in zip(labels, given_shares[is_scored].T, strict=True):
            assert step.rollout_reward.get(label, []) == column[~np.isnan(column)].tolist()
            assert (label in step.reward_term) == (~np.isnan(column)).any()
            if label in step.reward_term:
                filled = np.nan_to_num(column)
                assert step.reward_term[label] == pytest.approx(filled.mean(), **close)
                std = filled.std(ddof=1) if len(filled) > 1 else 0.0
                assert step.reward_term_std[label] == pytest.approx(std, **close)
        assert sum(step.reward_term[label] for label in labels if label in step.reward_term) == pytest.approx(
            step.reward, **close
        )
    flat = [
        len(found) < 2 or found.std(ddof=1) <= 1e-8  # TRL's tolerance
        for at in range(0, len(rows), group)
        if group > 1 and len(found := totals[at : at + group][is_scored[at : at + group]])
    ]
    assert step.frac_reward_zero_std == (pytest.approx(np.mean(flat)) if flat else None)


anything = st.none() | st.floats()


@given(st.lists(st.tuples(anything, anything, st.integers(0, 3)), max_size=12))
def test_scores_of_any_size_never_fail(rows: list[tuple[float | None, float | None, int]]) -> None:
    totals, terms, groups = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    step = dataclasses.replace(figures(totals, terms={"a": terms}, groups=groups), number=1)
    recorder = Recorder(RLStep, lambda *_: None)
    recorder.record(step)
    assert all(math.isfinite(value) for points in recorder.board._points.values() for value, _ in points)
    assert step.rollouts == sum(total is not None and math.isfinite(total) for total in totals)


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
