"""How a supervised run's training rows fit the maximum length, counted on the Arrow table that TRL prepared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.recorder import Recorder
from akka_otel_callbacks.common.step import SFTStep

if TYPE_CHECKING:
    import numpy
    from transformers import Trainer, TrainingArguments

Fit = names.SftDataFit
SAMPLE = 1000
"""Uncut rows that are searched for their ending in another place than the end."""


@dataclass(slots=True)
class RowCapture:
    """Counts on the translator's thread: a large dataset is read from disk for it."""

    dataset: Any
    max_length: int | None
    truncation: str
    """Who cut, and which side was kept: `collator`, `keep_start`, `keep_end`; `none` where nobody did."""

    def deliver(self, recorder: Recorder) -> None:
        recorder.record(SFTStep(data_rows=count_rows(self.dataset, self.max_length, self.truncation)))


def row_capture(trainer: Trainer, args: TrainingArguments) -> RowCapture | None:
    """The capture of a trainer's training rows; None for a dataset that is streamed."""
    dataset = getattr(trainer, "train_dataset", None)
    if not hasattr(getattr(dataset, "data", None), "column_names"):
        return None
    return RowCapture(dataset, getattr(args, "max_length", None), _truncation(trainer, args))


def _truncation(trainer: Trainer, args: TrainingArguments) -> str:
    skipped = (getattr(args, "dataset_kwargs", None) or {}).get("skip_prepare_dataset", False)
    if getattr(args, "packing", False) or skipped or not hasattr(args, "max_length"):
        return "none"
    if getattr(trainer.data_collator, "max_length", None) is not None:  # TRL 1.0 to 1.7
        return "collator"
    return str(getattr(args, "truncation_mode", "keep_start"))


def count_rows(dataset: Any, max_length: int | None, truncation: str) -> dict[str, int]:
    """Rows by fit, with only the kinds that can be told.

    Preparation replaces what it cuts, so that the length before the cut is gone. But the rows that stayed below the
    maximum show how an uncut row ends (TRL appends an EOS, a chat template closes the turn): a row at the maximum that
    ends otherwise was cut. Where uncut rows do not agree on an ending, where there are none, or where the ending also
    stands inside rows that could have been cut right behind it, `truncated` and `full` are left out.

    Args:
        dataset: the prepared `datasets.Dataset`.
        max_length: tokens that a row may have; None for no limit.
        truncation: who cut, see `RowCapture`.
    """
    if max_length is None or truncation == "none" or "input_ids" not in dataset.data.column_names:
        return {Fit.TOTAL: len(dataset)}
    rows = dataset.data.num_rows  # of the table beneath: a row that TRL drops is still in it, only no longer listed
    chunks = list(_chunks(dataset.data.column("input_ids")))
    at = sum(int((lengths == max_length).sum()) for _, _, lengths in chunks)
    over = sum(int((lengths > max_length).sum()) for _, _, lengths in chunks)
    counts = {Fit.TOTAL: rows, Fit.DROPPED: rows - len(dataset)}
    if truncation == "collator":
        return counts | {Fit.TRUNCATED: over, Fit.FULL: at}
    if over:  # nothing was cut after all
        return {Fit.TOTAL: len(dataset)}
    cut = _cut(chunks, max_length) if at and truncation == "keep_start" else (None if at else 0)
    return counts if cut is None else counts | {Fit.TRUNCATED: cut, Fit.FULL: at - cut}


Chunk = tuple["numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]", "numpy.ndarray[Any, Any]"]
"""Token IDs of all rows [tokens], where each row ends [rows], and its length [rows]."""


def _chunks(column: Any) -> Iterator[Chunk]:
    import numpy

    for chunk in column.chunks:
        offsets = chunk.offsets.to_numpy(zero_copy_only=False).astype(numpy.int64)
        yield chunk.values.to_numpy(zero_copy_only=False), offsets[1:], numpy.diff(offsets)


def _cut(chunks: list[Chunk], max_length: int) -> int | None:
    """Rows at the maximum that were cut there; None where that cannot be told."""
    endings = {
        int(token)
        for tokens, ends, lengths in chunks
        for token in set(tokens[ends[(lengths > 0) & (lengths < max_length)] - 1].tolist())
    }
    if len(endings) != 1:
        return None
    (ending,) = endings
    whole = sum(int((tokens[ends[lengths == max_length] - 1] == ending).sum()) for tokens, ends, lengths in chunks)
    if whole and _stands_inside(chunks, max_length, ending):
        return None
    return sum(int((lengths == max_length).sum()) for _, _, lengths in chunks) - whole


def _stands_inside(chunks: list[Chunk], max_length: int, ending: int) -> bool:
    seen = 0
    for tokens, ends, lengths in chunks:
        for end, length in zip(ends[lengths < max_length], lengths[lengths < max_length], strict=True):
            if seen == SAMPLE:
                return False
            seen += 1
            if (tokens[end - length : end - 1] == ending).any():
                return True
    return False
