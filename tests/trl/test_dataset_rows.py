"""Rows by fit, against the lengths that the test counts itself before TRL cuts anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.trl.dataset_rows import count_rows, row_capture

MAX_LENGTH = 24


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny.tokenizer()


def prepared(dataset: Any, tokenizer: Any, output_dir: Path, **options: Any) -> Any:
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(
        output_dir=str(output_dir), max_length=MAX_LENGTH, report_to=[], use_cpu=True, bf16=False, **options
    )
    return SFTTrainer(model=tiny.model(tokenizer), args=args, train_dataset=dataset, processing_class=tokenizer)


def counted(trainer: Any) -> dict[str, int]:
    capture = row_capture(trainer, trainer.args)
    assert capture is not None
    return count_rows(capture.dataset, capture.max_length, capture.truncation, prepared=capture.prepared)


def text_of(tokens: int, tokenizer: Any) -> str:
    """A text of exactly that many tokens."""
    text, words = "", iter(tiny.sentence(200, tokens).split())
    while len(tokenizer(text)["input_ids"]) < tokens:
        text = f"{text} {next(words)}"
    while len(tokenizer(text)["input_ids"]) > tokens:
        text = text[:-1]
    assert len(tokenizer(text)["input_ids"]) == tokens
    return text


def test_text_rows_are_told_apart_at_the_maximum(tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset

    lengths = [5, 9, MAX_LENGTH - 1, MAX_LENGTH - 1, MAX_LENGTH, MAX_LENGTH + 1, 40, 60]  # TRL adds one EOS to each
    dataset = Dataset.from_dict({"text": [text_of(length, tokenizer) for length in lengths]})
    with_eos = [length + 1 for length in lengths]
    assert counted(prepared(dataset, tokenizer, tmp_path)) == {
        "total": len(lengths),
        "truncated": sum(length > MAX_LENGTH for length in with_eos),
        "full": sum(length == MAX_LENGTH for length in with_eos),
        "dropped": 0,
    }


def test_rows_that_trl_drops_are_counted(tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset

    prompt_tokens = [3, 4, MAX_LENGTH + 5, MAX_LENGTH + 9, 6]  # a prompt that fills the row leaves nothing to train on
    dataset = Dataset.from_dict(
        {"prompt": [text_of(n, tokenizer) for n in prompt_tokens], "completion": [" we go home"] * len(prompt_tokens)}
    )
    trainer = prepared(dataset, tokenizer, tmp_path)
    rows = counted(trainer)
    assert rows["total"] == len(prompt_tokens)
    assert rows["dropped"] == len(prompt_tokens) - len(trainer.train_dataset)
    assert rows["truncated"] == 2
    assert rows["full"] == 0


def test_nothing_is_claimed_where_the_end_was_kept(tokenizer: Any, tmp_path: Path) -> None:
    from trl import SFTConfig

    if "truncation_mode" not in SFTConfig.__dataclass_fields__:
        pytest.skip("this TRL always keeps the start")
    rows = counted(prepared(tiny.texts(16), tokenizer, tmp_path, truncation_mode="keep_end"))
    assert rows == {"total": 16, "dropped": 0}


def test_a_packed_run_says_how_many_rows_it_trains_on(tokenizer: Any, tmp_path: Path) -> None:
    trainer = prepared(tiny.texts(16), tokenizer, tmp_path, packing=True)
    assert counted(trainer) == {"total": len(trainer.train_dataset)}


def test_a_streamed_dataset_has_no_counts(tokenizer: Any, tmp_path: Path) -> None:
    streamed = tiny.texts(16).to_iterable_dataset()
    trainer = prepared(streamed, tokenizer, tmp_path, max_steps=1)
    assert row_capture(trainer, trainer.args) is None


def dataset_of(rows: list[list[int]]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"input_ids": rows})


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([[1, 9], [2, 9], [1, 2, 9]], {"full": 1, "truncated": 0}, id="ends like the uncut rows"),
        pytest.param([[1, 9], [2, 9], [1, 2, 3]], {"full": 0, "truncated": 1}, id="ends otherwise"),
        pytest.param([[1, 9], [2, 8], [1, 2, 9]], {}, id="uncut rows disagree"),
        pytest.param([[1, 2, 9], [1, 2, 3]], {}, id="no uncut row"),
        pytest.param([[9, 9], [2, 9], [1, 2, 9]], {}, id="may be cut behind an inner ending"),
        pytest.param([[9, 9], [2, 9], [1, 2, 3]], {"full": 0, "truncated": 1}, id="an inner ending does not matter"),
        pytest.param([[1, 9], [2]], {"full": 0, "truncated": 0}, id="nothing reaches the maximum"),
    ],
)
def test_only_what_can_be_told_is_counted(rows: list[list[int]], expected: dict[str, int]) -> None:
    counts = count_rows(dataset_of(rows), max_length=3, truncation="keep_start")
    assert counts == {"total": len(rows), "dropped": 0, **expected}


def test_a_collator_that_cuts_leaves_the_true_lengths() -> None:
    dataset = dataset_of([[1], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]])
    expected = {"total": 4, "dropped": 0, "full": 1, "truncated": 2}
    assert count_rows(dataset, max_length=3, truncation="collator") == expected


# -- datasets that are lists of indices into a table

EOS = 1


def tokenized(rows: int, seed: int = 0) -> Any:
    """Rows of 2 to 40 tokens that end with an EOS, with labels, so that no version of TRL prepares a new table."""
    import random

    from datasets import Dataset

    draw = random.Random(seed)
    ids = [[draw.randrange(3, 90) for _ in range(draw.randrange(1, 40))] + [EOS] for _ in range(rows)]
    return Dataset.from_dict({"input_ids": ids, "labels": ids})


def interleaved() -> Any:
    """More rows than there are in the table: those of the shorter one come again."""
    from datasets import interleave_datasets

    return interleave_datasets([tokenized(10), tokenized(30, 1)], stopping_strategy="all_exhausted")


def concatenated() -> Any:
    from datasets import concatenate_datasets

    return concatenate_datasets([tokenized(40).shuffle(seed=1).select(range(9)), tokenized(20, 1)])


DATASETS = {
    "selected": lambda: tokenized(100).shuffle(seed=1).select(range(24)),
    "filtered": lambda: tokenized(100).filter(lambda row: len(row["input_ids"]) % 2),
    "concatenated": concatenated,
    "interleaved": interleaved,
    "sharded": lambda: tokenized(50).shuffle(seed=2).shard(3, 1, contiguous=False),
    "sliced": lambda: tokenized(50).select(range(10, 40)),
}


def by_length(dataset: Any) -> dict[str, int]:
    lengths = [len(row) for row in dataset["input_ids"]]
    return {
        "total": len(lengths),
        "dropped": 0,
        "truncated": sum(length > MAX_LENGTH for length in lengths),
        "full": sum(length == MAX_LENGTH for length in lengths),
    }


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_rows_are_those_that_the_dataset_lists(dataset: Any, tokenizer: Any, tmp_path: Path) -> None:
    assert counted(prepared(dataset(), tokenizer, tmp_path)) == by_length(dataset())


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_rows_that_a_collator_cuts_are_those_that_the_dataset_lists(dataset: Any) -> None:
    """TRL 1.0 to 1.7 leave a tokenized dataset as it is, and cut in the collator."""
    assert count_rows(dataset(), MAX_LENGTH, "collator", prepared=False) == by_length(dataset())


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=DATASETS)
def test_a_hosts_own_preparation_drops_nothing_that_is_known(dataset: Any) -> None:
    cut = dataset().map(lambda row: {"input_ids": row["input_ids"][:MAX_LENGTH]}).shuffle(seed=3).select(range(12))
    counts = count_rows(cut, MAX_LENGTH, "keep_start", prepared=False)
    assert counts["total"] == 12
    assert "dropped" not in counts
    at = [row for row in cut["input_ids"] if len(row) == MAX_LENGTH]
    assert counts.get("truncated", 0) == sum(row[-1] != EOS for row in at)


def test_a_column_of_another_kind_has_a_total_only() -> None:
    from datasets import Dataset, Features, Sequence, Value

    features = Features({"input_ids": Sequence(Value("int64"), length=3)})
    fixed = Dataset.from_dict({"input_ids": [[1, 2, 3], [4, 5, 6]]}, features=features)
    assert count_rows(fixed, 3, "keep_start") == {"total": 2}
