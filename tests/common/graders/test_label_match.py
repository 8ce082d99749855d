"""What counts as a label, and which rows cannot be graded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.graders.ledger import Ledger
from akka_otel_callbacks.graders import JsonLabelMatch

match = JsonLabelMatch()


def graded(completion: Any, gold: Any) -> tuple[float, str | None]:
    with Ledger() as ledger:
        score = match(data_source="d", solution_str=completion, ground_truth=gold, extra_info=None)
    (call,) = ledger.calls
    assert call.term == "json-label-match"
    return score, call.cause


@pytest.mark.parametrize(
    ("completion", "gold", "score"),
    [
        ('{"label": "spam"}', '{"label": "spam"}', 1.0),
        ('{"label": "spam", "why": "money"}', '"spam"', 1.0),
        ('```json\n{"label": "spam"}\n```', '{"label": "spam"}', 1.0),
        (' {"label": 1} \n', "1.0", 1.0),
        ('{"label": "ham"}', '{"label": "spam"}', 0.0),
        ('{"label": true}', "1", 0.0),
        ('{"label": "1"}', "1", 0.0),
        ("spam", '"spam"', 0.0),
        ("", '"spam"', 0.0),
        ("null", '"spam"', 0.0),
        ('{"label": ["spam"]}', '"spam"', 0.0),
        ('{"label": "spam"', '"spam"', 0.0),
        ("[" * 100_000, '"spam"', 0.0),
        ("false", "false", 1.0),
        ('{"label": "spam"}', {"label": "spam"}, 1.0),
        ('{"label": 3}', 3, 1.0),
        ([{"role": "assistant", "content": '{"label": "spam"}'}], '"spam"', 1.0),
    ],
)
def test_equal_labels_match(completion: Any, gold: Any, score: float) -> None:
    assert graded(completion, gold) == (score, None)


@pytest.mark.parametrize("gold", ["spam", "", None, "null", "[1]", '{"class": "spam"}', '{"label": null}', "NaN", [1]])
def test_a_gold_answer_that_is_no_label_cannot_be_graded(gold: Any) -> None:
    assert graded('{"label": "spam"}', gold) == (0.0, "ungradable")


def test_a_batch_is_graded_row_by_row() -> None:
    by_answer = JsonLabelMatch("answer", key="class", term="sentiment")
    with Ledger() as ledger:
        scores = by_answer(
            prompts=["p"] * 3, completions=['{"class": "a"}', '"b"', '"a"'], answer=['"a"', '{"class": "b"}', "a"]
        )
    assert scores == [1.0, 1.0, 0.0]
    assert [(call.term, call.cause) for call in ledger.calls] == [
        ("sentiment", None),
        ("sentiment", None),
        ("sentiment", "ungradable"),
    ]
    assert by_answer.__name__ == "sentiment"


def test_a_column_that_no_row_has_is_a_mistake_and_no_failure() -> None:
    with pytest.raises(ValueError, match=r"no row has a column 'ground_truth'.*answer"):
        match(prompts=["p"], completions=["c"], answer=["a"])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("label") | st.text(), inner, max_size=3),
)


@given(values | st.text(), values | st.text())
def test_anything_gets_a_score(completion: Any, gold: Any) -> None:
    for said in (completion, json.dumps(completion)):
        score, cause = graded(said, json.dumps(gold))
        assert score in (0.0, 1.0)
        assert cause in (None, "ungradable")


@given(st.text() | st.integers() | st.booleans())
def test_a_label_matches_itself_in_each_form(label: Any) -> None:
    forms = [json.dumps(label), json.dumps({"label": label})]
    assert {graded(said, gold) for said in forms for gold in forms} == {(1.0, None)}
