"""Padding and tokens of an update, whatever form the attention masks of its batches have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl.micro_batches import are_counted, counted, micro_batch, padding
from tests.trl.runs import exported_run
from tests.trl.trainings import TRL, sft

Form = Callable[[torch.Tensor], Any]
MINUS_INFINITY = torch.finfo(torch.float32).min


def pairs(mask: torch.Tensor) -> torch.Tensor:
    """Which position sees which: [rows, 1, positions, positions]."""
    length = mask.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return causal[None, None] & mask[:, None, None, :].bool()


def added(mask: torch.Tensor) -> torch.Tensor:
    """What is added to the scores: 0 for a position that is seen."""
    return torch.where(mask.bool(), 0.0, MINUS_INFINITY)


def collating(form: Form) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(own) for own in ids], batch_first=True)
        return {"input_ids": padded, "labels": padded.masked_fill(mask == 0, -100), "attention_mask": form(mask)}

    return collate


@pytest.mark.parametrize(
    ("form", "known"),
    [
        pytest.param(lambda mask: mask, True, id="ones"),
        pytest.param(lambda mask: mask.bool(), True, id="booleans"),
        pytest.param(lambda mask: mask.float(), True, id="ones that are floats"),
        pytest.param(pairs, False, id="pairs"),
        pytest.param(lambda mask: added(pairs(mask)), False, id="added pairs"),
    ],
)
def test_a_training_with_masks_of_another_form(form: Form, known: bool, tiny_model: str) -> None:
    guard.failures.clear()
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, trainer={"data_collator": collating(form)}, max_steps=2),
        expected=(RuntimeError,),
    )
    if run.error is not None:
        pytest.skip(f"TRL {TRL} itself takes no such mask")
    assert not guard.failures
    for step in run.steps:
        assert (run.shown(names.SFT_STEP_PADDING, step) is not None) == known
        assert (run.shown(names.SFT_STEP_TOKENS, step) is not None) == known, "TRL counts tokens by the mask's sum"
        assert run.shown(names.SFT_STEP_LOSS, step) is not None


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), extra=st.integers(0, 3), form=st.integers(0, 5))
def test_only_a_mask_of_positions_says_what_is_padding(lengths: list[int], extra: int, form: int) -> None:
    width = max(lengths) + extra
    mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).int()
    numbered = mask * (1 + torch.arange(len(lengths), dtype=torch.int32)[:, None])  # as of sequences in a pack
    given_as = [mask, mask.bool(), numbered, mask[:, None].expand(-1, width, -1), pairs(mask), added(mask)][form]
    batch = micro_batch({"input_ids": torch.zeros(mask.shape, dtype=torch.long), "attention_mask": given_as})
    assert padding([batch]) == (pytest.approx(1 - sum(lengths) / mask.numel()) if form < 3 else None)
    assert are_counted([batch]) == (form < 2 or (form == 2 and len(lengths) == 1))


def test_batches_of_other_kinds_say_nothing() -> None:
    batches = [
        micro_batch(batch)
        for batch in (None, [{"prompt": "a"}], {"input_ids": [1, 2]}, {"attention_mask": {"full": torch.ones(2, 2)}})
    ]
    assert padding(batches) is None
    assert counted([batch.labels for batch in batches]) is None
    assert [batch.positions for batch in batches] == [0, 0, 0, 0]


def test_labels_are_counted_as_they_are_predicted() -> None:
    ids = torch.arange(8).reshape(2, 4)
    labels = torch.tensor([[1, -100, 3, 4], [5, 6, -100, -100]])
    assert counted([micro_batch({"input_ids": ids, "labels": labels}).labels]) == [3]
    assert counted([micro_batch({"input_ids": ids, "labels": labels, "shift_labels": labels}).labels]) == [5]
    assert micro_batch({"input_ids": ids, "labels": torch.tensor([0, 1])}).labels is None, "classes, not tokens"
